#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// Whether a variable of ours goes along to an agent on another host. Not carried are those that say
// who and where the session is (HOME, USER, DISPLAY, SSH_*, XDG_*, ...), those of schedulers, the
// ones by which the hosts are reached and known (MGPU_HOSTFILE, MGPU_RDZV_TOKEN, ...), and those
// that a shell keeps for itself. See docs/cluster.md.
bool is_forwarded(std::string_view name);

// Whether an agent on this machine may inherit it: all but what is ours alone.
bool is_inherited(std::string_view name);

// A value as a POSIX shell reads it back within a line, whatever bytes it has but NUL. What is not
// plain ASCII passes through printf, because shells differ in the bytes they let through.
std::string sh_value(std::string_view value);

// What is run on a host: a shell that obeys the lines of its stdin. Plain enough for any login
// shell to pass on, and nothing of the job shows in it.
extern const char* const kRunStdinScript;

// The lines that make that shell the program: its folder, its environment, and last an exec. What
// follows on stdin is the program's. `exe` is used where the file is there, else its last part is
// looked up on PATH.
struct RemoteProgram {
  std::string workdir;                   // empty: where the shell is
  std::vector<std::string> environment;  // NAME=value, for names that is_forwarded has let through
  std::string exe;
  std::vector<std::string> args;
};
std::string script_of(const RemoteProgram& program);

}  // namespace mgpu::launcher
