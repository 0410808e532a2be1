#include "launcher/ranks/worker.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

namespace mgpu::launcher {

Worker::Worker(boost::asio::io_context& io, Spawned child, volatile int* exec_error)
    : pid_(child.pid), exec_error_(exec_error), watch_(io, child.pidfd.release()) {}

Worker::~Worker() {
  if (!running_) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // it may not have reached setsid
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Worker::signal_leader(Signal signal) {
  if (running_) ::kill(pid_, signal.number());
}

void Worker::signal_group(Signal signal) {
  if (!running_) return;
  if (::kill(-pid_, signal.number()) != 0)
    ::kill(pid_, signal.number());  // before its setsid there is no group
}

void Worker::on_exit(std::function<void()> ended) {
  ended_ = std::make_shared<std::function<void()>>(std::move(ended));
  await_exit();
}

void Worker::await_exit() {
  std::weak_ptr<std::function<void()>> still_here = ended_;
  watch_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this, still_here](const boost::system::error_code& failed) {
                      if (const auto call = still_here.lock(); call && !failed) (*call)();
                      // Asio may report an event of the previous descriptor with the same number
                      // when a worker is replaced within one iteration of the loop.
                      if (!failed && !still_here.expired() && running_) await_exit();
                    });
}

std::optional<WorkerExit> Worker::reap() {
  if (!running_) return std::nullopt;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  const auto now = Clock::now();
  // Until the leader is reaped, the id of its process group is not reused.
  ::kill(-pid_, SIGTERM);
  int status = 0;
  rusage usage{};
  if (::wait4(pid_, &status, WNOHANG, &usage) != pid_) return std::nullopt;
  running_ = false;
  WorkerExit end{decode_wait_status(status), now,
                 static_cast<std::uint64_t>(usage.ru_maxrss) * 1024};
  if (exec_error_) end.report.exec_error = *exec_error_;
  return end;
}

bool Worker::newly_stopped() {
  siginfo_t info{};
  return running_ && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG) == 0 &&
         info.si_pid != 0;
}

}  // namespace mgpu::launcher
