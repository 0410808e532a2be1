#include "launcher/lifecycle/restart_policy.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

constexpr std::chrono::seconds kStartUp{5};
constexpr std::chrono::milliseconds kLongestDelay{60'000};

bool failed_starting_up(const FailedAttempt& attempt) {
  return !is_retryable(attempt.cause) && attempt.lasted < kStartUp;
}

}  // namespace

Decision decide_restart(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before) {
  const size_t failures = history.size() + static_cast<size_t>(before);
  if (failures > static_cast<size_t>(limits.max_restarts)) return {};
  if (history.size() >= 2 && failed_starting_up(history.back()) &&
      failed_starting_up(history[history.size() - 2])) {
    return {.why = fmt::format(
                "not restarted: {} twice within {} s of the start; a restart would not help",
                name_of(history.back().cause), kStartUp.count())};
  }
  Decision decision{.restart = true};
  if (failures >= 2 && limits.retry_delay.count() > 0) {
    const auto doublings = std::min<size_t>(failures - 2, 16);
    decision.delay = std::min(limits.retry_delay * (1L << doublings),
                              std::max(kLongestDelay, limits.retry_delay));
  }
  return decision;
}

}  // namespace mgpu::launcher
