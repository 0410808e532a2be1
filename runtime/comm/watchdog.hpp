#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace mgpu::comm {

// The message about a collective that took longer than `limit`.
std::string timeout_message(const std::string& what, std::chrono::milliseconds limit);

// Watches collectives that the host does not wait for. If one fails or takes longer than the limit,
// it calls `fatal` with a message that names it, from the watchdog's own thread.
class Watchdog {
 public:
  struct Item {
    std::string what;
    std::function<bool()> done;            // called from the watchdog's thread
    std::function<std::string()> failure;  // empty if it has not failed
    std::int64_t sequence = 0;             // its number in collectives(); 0: none
  };

  Watchdog(std::chrono::milliseconds limit, std::function<void(const std::string&)> fatal);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void add(Item item);

 private:
  struct Watched {
    Item item;
    std::chrono::steady_clock::time_point since;
  };

  void check();
  std::string first_failure();

  std::chrono::milliseconds limit_;
  std::function<void(const std::string&)> fatal_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Watched> items_;  // in the order in which the device runs them
  std::jthread thread_;        // last, because it uses all of the above
};

}  // namespace mgpu::comm
