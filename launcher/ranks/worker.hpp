#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "launcher/lifecycle/exit_report.hpp"
#include "launcher/lifecycle/signal.hpp"
#include "rendezvous/processes/child_process.hpp"

namespace mgpu::launcher {

using Clock = std::chrono::steady_clock;

inline std::chrono::microseconds between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::microseconds>(end - begin);
}

// How a worker exited, when that was detected, its peak resident memory, and its CPU time with that
// of the children for which it has waited.
struct WorkerExit {
  ExitReport report;
  Clock::time_point when;
  std::uint64_t peak_bytes = 0;
  std::chrono::seconds cpu_time{0};
};

// One child process in its own session and process group, so that a signal also reaches the
// processes that it forks. The destructor kills the whole group and reaps the leader.
class Worker {
 public:
  Worker(boost::asio::io_context& io, rendezvous::Spawned child, volatile int* exec_error);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  pid_t pid() const { return process_.pid(); }
  bool running() const { return process_.running(); }

  // Both do nothing once the leader has been reaped, because its pid may be reused.
  void signal_leader(Signal signal) { process_.signal_leader(signal.number()); }
  void signal_group(Signal signal) { process_.signal_group(signal.number()); }

  // Calls `ended` when the leader has exited; never calls it after the Worker is destroyed.
  void on_exit(std::function<void()> ended);
  // Reaps the leader if it has exited, and sends SIGTERM to the rest of its group.
  std::optional<WorkerExit> reap();
  // Gives up on a process that cannot be killed, without waiting for it.
  void abandon() { process_.abandon(); }
  // Whether the leader was suspended (SIGSTOP and similar) since the last call.
  bool newly_stopped();

 private:
  void await_exit();

  rendezvous::ChildProcess process_;
  volatile int* exec_error_;
  boost::asio::posix::stream_descriptor watch_;
  std::shared_ptr<std::function<void()>> ended_;
};

}  // namespace mgpu::launcher
