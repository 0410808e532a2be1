#include "runtime/comm/watchdog.hpp"

#include <fmt/format.h>

#include "runtime/comm/collective_log.hpp"

namespace mgpu::comm {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

std::string timeout_message(const std::string& what, std::chrono::milliseconds limit) {
  return fmt::format(
      "{} did not finish within {} s; another rank is stuck, too slow, or has exited", what,
      std::chrono::duration_cast<std::chrono::seconds>(limit).count());
}

Watchdog::Watchdog(std::chrono::milliseconds limit, std::function<void(const std::string&)> fatal)
    : limit_(limit), fatal_(std::move(fatal)), thread_([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          {
            std::unique_lock lock(mutex_);
            wake_.wait_for(lock, stop, 200ms, [] { return false; });
          }
          if (!stop.stop_requested()) check();
        }
      }) {}

Watchdog::~Watchdog() {
  thread_.request_stop();
  thread_.join();
}

void Watchdog::add(Item item) {
  const std::lock_guard lock(mutex_);
  items_.push_back({std::move(item), steady_clock::now()});
}

void Watchdog::check() {
  std::string bad;
  {
    const std::lock_guard lock(mutex_);
    bad = first_failure();
  }
  if (!bad.empty()) fatal_(bad);
}

std::string Watchdog::first_failure() {
  while (!items_.empty()) {
    auto& [item, since] = items_.front();
    if (const auto failure = item.failure(); !failure.empty()) {
      return fmt::format("{} failed: {}", item.what, failure);
    }
    if (!item.done()) {
      if (steady_clock::now() - since < limit_) return {};
      return timeout_message(item.what, limit_);
    }
    if (item.sequence != 0) collectives().finished(item.sequence);
    items_.pop_front();
    // The next collective has been running only since this one ended.
    if (!items_.empty()) items_.front().since = std::max(items_.front().since, steady_clock::now());
  }
  return {};
}

}  // namespace mgpu::comm
