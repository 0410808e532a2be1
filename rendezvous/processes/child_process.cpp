#include "rendezvous/processes/child_process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace mgpu::rendezvous {

ChildProcess::ChildProcess(Spawned child)
    : pid_(child.pid), running_(child.pid > 0), pidfd_(std::move(child.pidfd)) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      running_(std::exchange(other.running_, false)),
      pidfd_(std::move(other.pidfd_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  kill();
  pid_ = std::exchange(other.pid_, -1);
  running_ = std::exchange(other.running_, false);
  pidfd_ = std::move(other.pidfd_);
  return *this;
}

ChildProcess::~ChildProcess() {
  kill();
}

void ChildProcess::signal_leader(int signo) const {
  if (running_) ::kill(pid_, signo);
}

void ChildProcess::signal_group(int signo) const {
  // Before its setsid or setpgid there is no group.
  if (running_ && ::kill(-pid_, signo) != 0) ::kill(pid_, signo);
}

bool ChildProcess::has_exited() const {
  siginfo_t about{};
  return running_ &&
         ::waitid(P_PID, static_cast<id_t>(pid_), &about, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         about.si_pid != 0;
}

std::optional<int> ChildProcess::reap(rusage* usage) {
  int status = 0;
  if (!running_ || ::wait4(pid_, &status, WNOHANG, usage) != pid_) return std::nullopt;
  running_ = false;
  return status;
}

std::optional<int> ChildProcess::wait() {
  if (!running_) return std::nullopt;
  int status = 0;
  pid_t reaped = 0;
  while ((reaped = ::waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  running_ = false;
  if (reaped != pid_) return std::nullopt;
  return status;
}

bool ChildProcess::wait_for_exit(std::chrono::milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ended{pidfd_.get(), POLLIN, 0};
    const int ready = ::poll(&ended, 1, static_cast<int>(std::max<long>(left.count(), 0)));
    if (ready >= 0 || errno != EINTR) return ready == 1;
  }
}

std::optional<int> ChildProcess::kill() {
  if (!running_) return std::nullopt;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // it may not have its own group yet
  return wait();
}

}  // namespace mgpu::rendezvous
