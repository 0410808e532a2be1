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
#include "launcher/ranks/spawn.hpp"

namespace mgpu::launcher {

using Clock = std::chrono::steady_clock;

inline std::chrono::microseconds between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::microseconds>(end - begin);
}

// How a worker ended, when we saw it, and the most memory it ever had resident.
struct WorkerExit {
  ExitReport report;
  Clock::time_point when;
  std::uint64_t peak_bytes = 0;
};

// One child process, alone in a session and process group of its own, so that a signal can reach
// whatever it forks too. Destroying a Worker kills the whole group and reaps the leader.
class Worker {
 public:
  Worker(boost::asio::io_context& io, Spawned child, volatile int* exec_error);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  pid_t pid() const { return pid_; }
  bool running() const { return running_; }

  // Both do nothing once the leader has been reaped: its number may be somebody else's by then.
  void signal_leader(int signo);
  void signal_group(int signo);

  // Calls `ended` when the leader has ended, or with no call at all when the Worker goes first.
  void on_exit(std::function<void()> ended);
  // Takes the leader's end, if it has come; what is left of its group gets SIGTERM.
  std::optional<WorkerExit> reap();
  // It cannot be ended: forgets it without waiting.
  void abandon() { running_ = false; }
  // True once when the leader was stopped (SIGSTOP and its kin) since the last question.
  bool newly_stopped();

 private:
  void await_exit();

  pid_t pid_;
  bool running_ = true;
  volatile int* exec_error_;
  boost::asio::posix::stream_descriptor watch_;
  std::shared_ptr<std::function<void()>> ended_;
};

}  // namespace mgpu::launcher
