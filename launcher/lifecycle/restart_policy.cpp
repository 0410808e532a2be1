#include "launcher/lifecycle/restart_policy.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

constexpr std::chrono::seconds kStartUp{5};
constexpr std::chrono::milliseconds kLongestDelay{60'000};

bool failed_starting_up(const FailedAttempt& attempt) {
  return !attempt.of_node && !is_retryable(attempt.cause) && attempt.lasted < kStartUp;
}

// The failed attempts that count against the limit.
size_t counted_failures(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before) {
  size_t counted = static_cast<size_t>(before);
  std::int64_t furthest = -1;
  for (const auto& attempt : history) {
    const bool progressed = attempt.last_step > furthest;
    furthest = std::max(furthest, attempt.last_step);
    counted = limits.renewed_by_progress && progressed ? 0 : counted + 1;
  }
  return counted;
}

}  // namespace

Decision decide_restart(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before) {
  const size_t failures = counted_failures(history, limits, before);
  if (failures > static_cast<size_t>(limits.max_restarts)) return {};
  if (history.size() >= 2 && failed_starting_up(history.back()) &&
      failed_starting_up(history[history.size() - 2])) {
    return {.why = fmt::format(
                "not restarted: {} twice within {} s of the start; a restart would not help",
                name_of(history.back().cause), kStartUp.count())};
  }
  Decision decision{.restart = true, .counted = static_cast<int>(failures)};
  if (failures >= 2 && limits.retry_delay.count() > 0) {
    const auto doublings = std::min<size_t>(failures - 2, 16);
    decision.delay = std::min(limits.retry_delay * (1L << doublings),
                              std::max(kLongestDelay, limits.retry_delay));
  }
  return decision;
}

}  // namespace mgpu::launcher
