#include "runtime/profiling/range_log.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

namespace mgpu::profiling {
namespace {

std::atomic<bool> is_on = false;

struct Log {
  std::mutex mutex;
  std::int64_t begin_ns = 0;
  std::vector<Span> spans;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // when each began, and its number
};

Log& log() {
  static Log instance;
  return instance;
}

// What to add to the log's clock for nanoseconds since 1970.
std::int64_t since_1970() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - range_log_clock();
}

}  // namespace

bool range_log_is_on() noexcept {
  return is_on.load(std::memory_order_relaxed);
}

std::int64_t range_log_clock() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void log_range(const char* name, std::int64_t begin_ns) noexcept try {
  thread_local const std::int64_t thread = ::gettid();
  const auto end_ns = range_log_clock();
  const std::lock_guard lock(log().mutex);
  if (!range_log_is_on() || begin_ns < log().begin_ns) return;
  log().spans.push_back({.name = name, .begin_ns = begin_ns, .end_ns = end_ns, .thread = thread});
} catch (const std::exception&) {
  // Without memory for it, the trace lacks this range; the work goes on.
}

void start_range_log() {
  const std::lock_guard lock(log().mutex);
  log().spans.clear();
  log().steps.clear();
  log().begin_ns = range_log_clock();
  is_on = true;
}

void begin_step_in_range_log(std::int64_t step) {
  const std::lock_guard lock(log().mutex);
  log().steps.emplace_back(range_log_clock(), step);
}

std::vector<Span> stop_range_log() {
  const std::lock_guard lock(log().mutex);
  is_on = false;
  auto spans = std::exchange(log().spans, {});
  const auto offset = since_1970();
  for (auto& span : spans) {
    const auto next = std::ranges::upper_bound(log().steps, span.begin_ns, {},
                                               &std::pair<std::int64_t, std::int64_t>::first);
    if (next != log().steps.begin()) span.step = std::prev(next)->second;
    span.begin_ns += offset;
    span.end_ns += offset;
  }
  return spans;
}

}  // namespace mgpu::profiling
