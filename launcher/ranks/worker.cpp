#include "launcher/ranks/worker.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <utility>

namespace mgpu::launcher {

Worker::Worker(boost::asio::io_context& io, rendezvous::Spawned child, volatile int* exec_error)
    : process_(std::move(child)), exec_error_(exec_error), watch_(io, process_.release_pidfd()) {}

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
                      if (!failed && !still_here.expired() && running()) await_exit();
                    });
}

std::optional<WorkerExit> Worker::reap() {
  if (!process_.has_exited()) return std::nullopt;
  const auto now = Clock::now();
  process_.signal_group(SIGTERM);
  rusage usage{};
  const auto status = process_.reap(&usage);
  if (!status) return std::nullopt;
  WorkerExit end{decode_wait_status(*status), now,
                 static_cast<std::uint64_t>(usage.ru_maxrss) * 1024,
                 std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)};
  if (exec_error_) end.report.exec_error = *exec_error_;
  return end;
}

bool Worker::newly_stopped() {
  siginfo_t info{};
  return running() && ::waitid(P_PID, static_cast<id_t>(pid()), &info, WSTOPPED | WNOHANG) == 0 &&
         info.si_pid != 0;
}

}  // namespace mgpu::launcher
