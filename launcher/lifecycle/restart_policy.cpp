#include "launcher/lifecycle/restart_policy.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

constexpr std::chrono::seconds kStartUp{5};
// In this time programs import what they need, even from a slow network file system. After it, a
// program that reports no steps may have done work from which a restart continues.
constexpr std::chrono::seconds kImports{60};
constexpr std::chrono::milliseconds kAlike{5'000}, kLongestDelay{60'000};

bool failed_starting_up(const FailedAttempt& attempt) {
  return !attempt.of_node && !is_retryable(attempt.cause) && attempt.lasted < kStartUp;
}

bool certainly_fails_again(const FailedAttempt& attempt) {
  return !attempt.of_node && attempt.certain && attempt.last_step < 0 && attempt.lasted < kImports;
}

// Whether one of the first `count` attempts, or one of which nothing is known, may have done work.
// Then the program could be started, and what it needs may only be missing for a while.
bool had_started_before(const std::vector<FailedAttempt>& history, std::size_t count, int before) {
  return before > 0 || std::any_of(history.begin(), history.begin() + static_cast<long>(count),
                                   [](const FailedAttempt& attempt) {
                                     return attempt.last_step >= 0 || attempt.lasted >= kImports;
                                   });
}

// Whether both attempts came about equally far, by the time that they ran.
bool lasted_alike(const FailedAttempt& one, const FailedAttempt& other) {
  const auto longer = std::max(one.lasted, other.lasted);
  return longer - std::min(one.lasted, other.lasted) <= std::max(longer / 10, kAlike);
}

// The newest failure is that of the attempt before it, at the same step. The same text is not
// enough: "error in a worker process" can have another reason each time.
bool is_repeated(const std::vector<FailedAttempt>& history) {
  if (history.size() < 2) return false;
  const auto& last = history.back();
  const auto& before = history[history.size() - 2];
  if (last.of_node || last.cause != before.cause || last.last_step != before.last_step)
    return false;
  if (last.last_step >= 0) return true;
  return !last.text.empty() && last.text == before.text && lasted_alike(last, before);
}

std::string place_of(const FailedAttempt& attempt) {
  return attempt.last_step < 0 ? "" : fmt::format(" after step {}", attempt.last_step);
}

// Why the job ends although restarts are left; empty: it does not.
std::string reason_to_give_up(const std::vector<FailedAttempt>& history,
                              const FailurePolicies& policies, int before) {
  const auto& last = history.back();
  const auto name = name_of(last.cause);
  const auto policy = policies.of(last.cause);
  if (policies.is_chosen(last.cause)) {
    if (policy == FailurePolicy::give_up)
      return fmt::format("not restarted: the policy for {} is give_up", name);
  } else if (policy == FailurePolicy::give_up && certainly_fails_again(last) &&
             !had_started_before(history, history.size() - 1, before)) {
    return fmt::format(
        "not restarted: {} before the first step; a restart would not help (--on-failure "
        "{}=restart restarts anyway)",
        name, name);
  } else if (history.size() >= 2 && failed_starting_up(last) &&
             failed_starting_up(history[history.size() - 2]) &&
             !had_started_before(history, history.size() - 2, before)) {
    return fmt::format("not restarted: {} twice within {} s of the start; a restart would not help",
                       name, kStartUp.count());
  }
  if (policy == FailurePolicy::give_up_if_repeated && is_repeated(history))
    return fmt::format("not restarted: {} twice in a row{}; a restart would not help", name,
                       place_of(last));
  return {};
}

// The failed attempts, and those before the history; if progress renews them, those since the last
// attempt that went beyond the last step of all before it.
size_t failures_in(const std::vector<FailedAttempt>& history, int before,
                   bool renewed_by_progress) {
  size_t counted = static_cast<size_t>(before);
  std::int64_t furthest = -1;
  for (const auto& attempt : history) {
    const bool progressed = attempt.last_step > furthest;
    furthest = std::max(furthest, attempt.last_step);
    counted = renewed_by_progress && progressed ? 0 : counted + 1;
  }
  return counted;
}

}  // namespace

Decision decide_restart(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before) {
  const size_t failures = failures_in(history, before, limits.renewed_by_progress);
  Decision decision{.policy = limits.policies.of(history.back().cause)};
  if (failures > static_cast<size_t>(limits.max_restarts)) return decision;
  decision.why = reason_to_give_up(history, limits.policies, before);
  if (!decision.why.empty()) return decision;
  decision.restart = true;
  decision.counted = static_cast<int>(failures);
  // What is missing for a while needs time to come back.
  const bool lost_its_files = !is_retryable(history.back().cause) &&
                              had_started_before(history, history.size() - 1, before);
  const size_t in_vain = failures_in(history, before, true) + (lost_its_files ? 1 : 0);
  if (in_vain >= 2 && limits.retry_delay.count() > 0) {
    const auto doublings = std::min<size_t>(in_vain - 2, 16);
    decision.delay = std::min(limits.retry_delay * (1L << doublings),
                              std::max(kLongestDelay, limits.retry_delay));
  }
  return decision;
}

}  // namespace mgpu::launcher
