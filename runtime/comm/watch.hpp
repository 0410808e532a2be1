#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace mgpu::comm {

// What is said of a collective that took longer than it may.
std::string timeout_message(const std::string& what, std::chrono::milliseconds limit);

// Looks after collectives that nobody waits for on the host: if one fails or takes longer than the
// limit, `fatal` is called with its name, from the watch's own thread.
class Watch {
 public:
  struct Item {
    std::string what;
    std::function<bool()> done;            // may be asked from the watch's thread
    std::function<std::string()> failure;  // empty if there is none
  };

  Watch(std::chrono::milliseconds limit, std::function<void(const std::string&)> fatal);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

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
  std::deque<Watched> items_;  // in the order they run on the device
  std::jthread thread_;        // last: it uses all of the above
};

}  // namespace mgpu::comm
