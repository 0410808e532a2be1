#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace mgpu::launcher {

// How much of a limited memory was in use at a time.
struct MemoryReading {
  std::chrono::duration<double> time{0};  // of any clock that does not jump
  std::uint64_t used = 0;
  std::uint64_t total = 0;  // 0: unknown, no warnings
};

struct MemoryWarning {
  std::uint64_t used = 0;
  std::uint64_t total = 0;
  double bytes_per_minute = 0;  // 0: it does not grow

  // "77.1 of 79.6 GiB, growing 0.4 GiB a minute: full in about 6 minutes".
  std::string text() const;
};

// A short history of readings, and warnings before the memory is full. It does no I/O and reads no
// clock.
//
// There are two thresholds, each with at most one warning until use has fallen well below them
// again, and at most one in ten minutes.
class MemoryTrend {
 public:
  // level: high use alone is a reason for a warning. growth: only use that keeps growing, as for
  // GPUs, of which PyTorch's allocator keeps nearly all memory in use.
  enum class Rule { level, growth };

  explicit MemoryTrend(Rule rule) : rule_(rule) {}

  std::optional<MemoryWarning> add(const MemoryReading& reading);
  // Over the history; 0: it does not grow, or the history is too short.
  double bytes_per_minute() const;
  const std::deque<MemoryReading>& history() const { return history_; }
  void clear();

 private:
  int threshold_of(const MemoryReading& reading) const;

  Rule rule_;
  std::deque<MemoryReading> history_;
  int warned_ = 0;  // the highest threshold with a warning since use was low
  std::chrono::duration<double> quiet_until_[3] = {};  // by threshold
};

}  // namespace mgpu::launcher
