#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// Whether a variable is forwarded to an agent on another host. Not forwarded: variables of the
// login session (HOME, USER, DISPLAY, SSH_*, XDG_*, ...), of schedulers, of reaching and
// authenticating the hosts (MGPU_HOSTFILE, MGPU_RDZV_TOKEN, ...), and those that a shell sets
// itself. See docs/cluster.md.
bool is_forwarded(std::string_view name);

// Whether an agent on this machine inherits the variable: all except those of this process only.
bool is_inherited(std::string_view name);

// Quotes a value, which may have any bytes except NUL, for one line of a POSIX shell. Values that
// are not plain ASCII are encoded with printf, because shells differ in which bytes they accept.
std::string sh_value(std::string_view value);

// The command that ssh runs on a host: a shell that executes the lines of its stdin. It is simple
// enough for any login shell, and reveals nothing about the job.
extern const char* const kRunStdinScript;

// The line on stdout and stderr before the program starts. An account that runs no commands does
// not print it. It is on both, because an --ssh-command may discard one of them.
inline constexpr const char* kStartLine = "mgpu-run: starting the agent of this host";

// The lines that turn that shell into the program: they set its folder and environment, print
// kStartLine, and execute it. The rest of stdin belongs to the program. `exe` is used if the file
// exists, else its last part is looked up on PATH.
struct RemoteProgram {
  std::string workdir;                   // empty: that of the shell
  std::vector<std::string> environment;  // NAME=value, for names that is_forwarded accepts
  std::string exe;
  std::vector<std::string> args;
};
std::string script_of(const RemoteProgram& program);

}  // namespace mgpu::launcher
