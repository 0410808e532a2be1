#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace mgpu::rendezvous {

// Makes calls one after another, in the order in which they were given, in a thread of its own:
// calls that may block for long, as of a file system whose server does not respond. The thread
// starts with the first call. If it cannot be started, calls are made at once by who gives them.
//
// The destructor does not wait for the call that runs, and drops those that wait. A call must
// therefore own what it uses, or share it.
class SerialThread {
 public:
  SerialThread();
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;
  ~SerialThread();

  // May be called in any thread, also by a call. A call must not throw.
  void run(std::function<void()> call);
  // Whether all calls have been made.
  bool idle() const;
  // Waits until then, at most this long, and returns idle().
  bool wait_until_idle(std::chrono::milliseconds limit) const;

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // shared with the thread
};

}  // namespace mgpu::rendezvous
