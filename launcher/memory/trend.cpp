#include "launcher/memory/trend.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "launcher/lifecycle/memory_text.hpp"

namespace mgpu::launcher {
namespace {

using std::chrono::duration;

constexpr std::size_t kLongestHistory = 30;
constexpr std::size_t kLongestSlope = 12;  // readings
constexpr std::size_t kShortestSlope = 4;
constexpr double kQuietSeconds = 600;
constexpr double kNoise = 0.001;  // of the memory, in a minute

// From this share of the memory on, growth is watched.
constexpr double watched_from(MemoryTrend::Rule rule) {
  return rule == MemoryTrend::Rule::growth ? 0.9 : 0.7;
}

double share(const MemoryReading& reading) {
  return double(reading.used) / double(reading.total);
}

double minutes_left(const MemoryReading& reading, double bytes_per_minute) {
  const double left = double(reading.total) - double(reading.used);
  return bytes_per_minute > 0 ? std::max(left, 0.0) / bytes_per_minute : HUGE_VAL;
}

// The slope of the line of least squares, in bytes a minute.
template <class Iterator>
double slope(Iterator begin, Iterator end) {
  const auto count = double(end - begin);
  double time = 0, used = 0;
  for (auto at = begin; at != end; ++at) time += at->time.count(), used += double(at->used);
  time /= count, used /= count;
  double together = 0, squares = 0;
  for (auto at = begin; at != end; ++at) {
    const double from_middle = at->time.count() - time;
    together += from_middle * (double(at->used) - used);
    squares += from_middle * from_middle;
  }
  return squares > 0 ? together / squares * 60 : 0;
}

// In the unit of share_text unless that would be 0.0.
std::string growth_text(double bytes) {
  constexpr double kBytesInGiB = 1 << 30;
  return bytes >= 0.1 * kBytesInGiB ? fmt::format("{:.1f} GiB", bytes / kBytesInGiB)
                                    : size_text(static_cast<std::uint64_t>(bytes));
}

std::string minutes_text(double minutes) {
  if (minutes < 1) return "full in less than a minute";
  const auto whole = std::lround(minutes);
  return fmt::format("full in about {} minute{}", whole, whole == 1 ? "" : "s");
}

}  // namespace

std::string MemoryWarning::text() const {
  auto now = share_text(used, total);
  if (bytes_per_minute <= 0) return now;
  return fmt::format("{}, growing {} a minute: {}", now, growth_text(bytes_per_minute),
                     minutes_text(minutes_left({.used = used, .total = total}, bytes_per_minute)));
}

// Only over readings since use became high: a program that has just started grows quickly.
double MemoryTrend::bytes_per_minute() const {
  auto begin = history_.end();
  while (begin != history_.begin() && history_.end() - begin < std::ptrdiff_t(kLongestSlope) &&
         share(*(begin - 1)) >= watched_from(rule_))
    --begin;
  if (history_.end() - begin < std::ptrdiff_t(kShortestSlope)) return 0;
  // A single step is not growth: the later half has to grow too.
  const auto later = begin + (history_.end() - begin) / 2;
  const double found = std::min(slope(begin, history_.end()), slope(later, history_.end()));
  return found > kNoise * double(history_.back().total) ? found : 0;
}

// 0: no reason for a warning.
int MemoryTrend::threshold_of(const MemoryReading& reading) const {
  const double left = minutes_left(reading, bytes_per_minute());
  const bool level = rule_ == Rule::level;
  if ((level && share(reading) >= 0.95) || left <= 2) return 2;
  if ((level && share(reading) >= 0.9) || left <= 15) return 1;
  return 0;
}

std::optional<MemoryWarning> MemoryTrend::add(const MemoryReading& reading) {
  if (reading.total == 0) return std::nullopt;
  history_.push_back(reading);
  if (history_.size() > kLongestHistory) history_.pop_front();
  const int threshold = threshold_of(reading);
  if (threshold == 0 && share(reading) < watched_from(rule_) - 0.05) warned_ = 0;
  if (threshold <= warned_) return std::nullopt;
  warned_ = threshold;
  if (reading.time < quiet_until_[threshold]) return std::nullopt;
  for (int reached = 0; reached <= threshold; ++reached)
    quiet_until_[reached] = reading.time + duration<double>(kQuietSeconds);
  return MemoryWarning{reading.used, reading.total, bytes_per_minute()};
}

void MemoryTrend::clear() {
  history_.clear();
  warned_ = 0;
}

}  // namespace mgpu::launcher
