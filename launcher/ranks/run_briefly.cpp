#include "launcher/ranks/run_briefly.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "launcher/lifecycle/exit_report.hpp"
#include "launcher/ranks/spawn.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/processes/child_process.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::UniqueFd;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 64 << 10;
constexpr std::chrono::seconds kKilled{1};  // from SIGKILL to the end of the process

// The processes of all calls that are under way.
class BriefProcesses {
 public:
  void add(pid_t pid) {
    const std::lock_guard lock(mutex_);
    pids_.insert(pid);
  }
  void remove(pid_t pid) {
    const std::lock_guard lock(mutex_);
    pids_.erase(pid);
  }
  bool contains(pid_t pid) {
    const std::lock_guard lock(mutex_);
    return pids_.contains(pid);
  }

 private:
  std::mutex mutex_;
  std::set<pid_t> pids_;
};

BriefProcesses& brief_processes() {
  static auto* const all = new BriefProcesses;  // threads may outlive static objects
  return *all;
}

// As long as it exists, runs_briefly() is true.
class RunningEntry {
 public:
  explicit RunningEntry(pid_t pid) : pid_(pid) { brief_processes().add(pid); }
  RunningEntry(const RunningEntry&) = delete;
  RunningEntry& operator=(const RunningEntry&) = delete;
  ~RunningEntry() { brief_processes().remove(pid_); }

 private:
  pid_t pid_;
};

// Without what makes debuggers fetch symbols from servers, which can take minutes.
std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** one = environ; *one; ++one)
    if (!std::string_view(*one).starts_with("DEBUGINFOD_")) all.emplace_back(*one);
  return all;
}

// Reads available output; false: end of the output.
bool read_some(int fd, std::string& output) {
  char buffer[4096];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
  output.append(buffer, std::min(static_cast<std::size_t>(n), kMostOutput - output.size()));
  return true;
}

// Reads until the child has exited; true: it exited in time. Does not wait for processes that it
// left behind, which may still hold the pipe.
bool follow(int pipe, int pidfd, SteadyClock::time_point deadline, std::string& output) {
  pollfd watched[] = {{pipe, POLLIN, 0}, {pidfd, POLLIN, 0}};
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
    if (left <= 0) return false;
    if (::poll(watched, 2, static_cast<int>(std::min<long>(left, 60'000))) < 0 && errno != EINTR)
      rendezvous::throw_errno("cannot wait for a program");
    if (watched[0].revents && !read_some(pipe, output)) watched[0].fd = -1;
    if (watched[1].revents & POLLIN && !(watched[0].revents & POLLIN)) return true;
  }
}

}  // namespace

BriefRun run_briefly(const std::vector<std::string>& argv, const Inherited& inherited,
                     Milliseconds limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) rendezvous::throw_errno("cannot create a pipe");
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ChildSetup setup{.argv = argv,
                   .envp = own_environment(),
                   .workdir = std::string(1, '/'),  // gcc 12 has a false warning for a plain "/"
                   .stdin_fd = nothing.get(),
                   .stdout_fd = to.get(),
                   .stderr_fd = to.get()};
  const auto deadline = SteadyClock::now() + limit;
  auto spawned = spawn(std::move(setup), inherited);
  const RunningEntry entry(spawned.pid);  // removed after the child is reaped
  rendezvous::ChildProcess child(std::move(spawned));
  to.reset();
  BriefRun run;
  run.timed_out = !follow(from.get(), child.pidfd(), deadline, run.output);
  child.signal_group(SIGKILL);
  child.signal_leader(SIGKILL);  // it may not have reached setsid
  if (run.timed_out && !child.wait_for_exit(kKilled)) {
    child.abandon();  // it is stuck in the kernel and cannot be killed
    return run;
  }
  if (const auto status = child.wait()) run.status = decode_wait_status(*status).shell_status();
  return run;
}

bool runs_briefly(pid_t pid) {
  return brief_processes().contains(pid);
}

}  // namespace mgpu::launcher
