#include "runtime/rewards/sandbox.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/processes/spawn.hpp"
#include "runtime/rewards/sandbox/enter.hpp"
#include "runtime/rewards/sandbox/failure_text.hpp"
#include "runtime/rewards/sandbox/surroundings.hpp"
#include "runtime/rewards/sandbox/system_call_filter.hpp"
#include "runtime/rewards/sandbox/user_map.hpp"

namespace mgpu::rewards {
namespace {

using rendezvous::ChildProcess;
using rendezvous::UniqueFd;

constexpr int kNamespaces =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
constexpr int kLongestStart = 60'000;  // milliseconds, on a busy machine
constexpr std::size_t kMountList = 4 << 20;

// The first process of the sandbox. It reaps orphan processes, which a Python program would not
// do. It is a shell and not a copy of us, because a copy would keep our memory.
constexpr const char* kFirstProcess =
    "exec 3<&0 </dev/null\n"
    "\"$@\" <&3 3<&- &\n"
    "exec 3<&- >&-\n"
    "wait $!\n";

class FailedStep : public SandboxError {
 public:
  explicit FailedStep(const SandboxFailure& failure, const std::string& path = "")
      : SandboxError(failure_text(failure, path)), error_(failure.error) {}

  int error() const { return error_; }

 private:
  int error_;
};

// Whether the machine lacks something for a while, and not the permission to make a sandbox.
bool may_pass(int error) {
  const int passing[] = {EAGAIN, ENOMEM, EMFILE, ENFILE, ETIMEDOUT, EIO, ESTALE};
  return std::ranges::find(passing, error) != std::end(passing);
}

struct PipeEnds {
  UniqueFd read, write;
};

PipeEnds make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) rendezvous::throw_errno("cannot make a pipe");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the new process starts with.
struct NewProcess {
  const SandboxEntry* entry;
  int our_end;  // of the pipe `go`
};

void begin_sandbox(void* argument) {
  const auto& process = *static_cast<const NewProcess*>(argument);
  ::close(process.our_end);
  enter_sandbox(*process.entry);
}

// Throws SandboxError if namespaces cannot be made.
ChildProcess fork_into_namespaces(NewProcess process) {
  try {
    return ChildProcess(rendezvous::fork_child(&begin_sandbox, &process, kNamespaces));
  } catch (const std::system_error& e) {
    throw FailedStep({SandboxStep::make_namespaces, e.code().value()});
  }
}

// Returns when the shell runs. Throws if a step failed.
void wait_until_started(const UniqueFd& report, const std::vector<std::string>& readable) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLongestStart);
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    pollfd fd{report.get(), POLLIN, 0};
    const int ready = ::poll(&fd, 1, static_cast<int>(std::max<long long>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw FailedStep({SandboxStep::run_shell, ready < 0 ? errno : ETIMEDOUT});
    SandboxFailure failure;
    const auto got = ::read(report.get(), &failure, sizeof failure);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return;
    const auto item = static_cast<std::size_t>(failure.item);
    throw FailedStep(failure, failure.item < 0 ? "" : readable.at(item));
  }
}

}  // namespace

ChildProcess start_in_sandbox(const SandboxedProgram& program) {
  auto environment = program.environment;
  for (auto& variable : sandbox_environment()) environment.push_back(std::move(variable));
  std::vector<std::string> argv = {"/bin/sh", "-c", kFirstProcess, "sh"};
  argv.insert(argv.end(), program.argv.begin(), program.argv.end());
  const auto folder = std::filesystem::absolute(program.folder.empty() ? "." : program.folder);
  auto wanted = program.readable;
  wanted.push_back(folder);
  auto readable = in_hidden_folders(wanted);
  if (readable.size() > kMostReadable)
    throw SandboxError(fmt::format(
        "reward_sandbox: PATH, PYTHONPATH and similar variables name {} folders in /tmp and "
        "/dev/shm, but at most {} can be shown in a sandbox; move them",
        readable.size(), kMostReadable));
  auto filter = system_call_filter();
  std::string scratch(kMountList, '\0');
  const auto map = choose_user_map();
  auto go = make_pipe();
  auto report = make_pipe();

  const auto argv_pointers = pointers_to(argv);
  const auto environment_pointers = pointers_to(environment);
  const auto readable_pointers = pointers_to(readable);
  const SandboxEntry entry{
      .argv = argv_pointers.data(),
      .environment = environment_pointers.data(),
      .folder = folder.c_str(),
      .readable = readable_pointers.data(),
      .readable_count = readable.size(),
      .filter = {static_cast<unsigned short>(filter.size()), filter.data()},
      .maps_all_users = map.all,
      .scratch = scratch.data(),
      .scratch_size = scratch.size(),
      .in = program.in,
      .out = program.out,
      .err = program.err,
      .go = go.read.get(),
      .report = report.write.get(),
  };
  auto process = fork_into_namespaces({&entry, go.write.get()});
  go.read.reset();
  report.write.reset();
  try {
    write_user_map(process.pid(), map);
  } catch (const std::system_error& e) {
    throw FailedStep({SandboxStep::map_users, e.code().value()});
  }
  if (::write(go.write.get(), "m", 1) != 1) rendezvous::throw_errno("cannot write to a pipe");
  wait_until_started(report.read, readable);
  return process;
}

void check_sandbox(const std::vector<std::string>& readable, const std::string& folder) {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) rendezvous::throw_errno("cannot open /dev/null");
  const auto start = [&] {
    try {
      return start_in_sandbox({.argv = {"/bin/sh", "-c", ":"},
                               .folder = folder,
                               .readable = readable,
                               .in = null.get(),
                               .out = null.get(),
                               .err = null.get()});
    } catch (const FailedStep& e) {
      if (!may_pass(e.error())) throw;
      rendezvous::throw_like(std::system_error(e.error(), std::generic_category()), e.what());
    }
  };
  const auto status = start().wait();
  if (!status || !WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
    throw SandboxError(failure_text({SandboxStep::run_shell, ECHILD}, ""));
}

}  // namespace mgpu::rewards
