#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/lifecycle/failure_policy.hpp"

namespace mgpu::launcher {

struct Decision {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  std::string why;  // why there is no restart although some were left; for the user
  int counted = 0;  // restarts against the limit, with this one
  FailurePolicy policy = FailurePolicy::restart;  // that applied to the last failure
};

// One attempt that failed: why, how long after its start, and the last step that a rank reported;
// -1: none.
struct FailedAttempt {
  FailureKind cause;
  std::chrono::milliseconds lasted;
  std::int64_t last_step = -1;
  bool of_node = false;  // a node that is no longer part of the job has caused it
  bool certain = false;  // its text leaves no doubt that it repeats (see Cause::certain)
  std::string text =
      {};  // what failed; two failures with the same text are the same. Empty: unknown
};

struct RestartLimits {
  int max_restarts = 0;
  // Before the second restart without progress, doubled for each further one.
  std::chrono::milliseconds retry_delay{0};
  // An attempt that went beyond the last step of all before it makes all restarts available again.
  bool renewed_by_progress = false;
  FailurePolicies policies = {};
};

// Decides whether the ranks are restarted. `history` has the failed attempts so far, the newest
// last; `before` is the number of earlier failed attempts of which nothing is known. The first
// restart is immediate, and so is one after progress.
//
// The policy of the failure's kind can end the job although restarts are left. Unless the user has
// chosen the policy, that needs certainty: a program that cannot start (see is_retryable) is not
// restarted after a text that leaves no doubt and before any step, or when it fails in this way
// twice in a row within 5 s of the start. Neither applies after an attempt that reported a step or
// lasted a minute: that one has started with the same files, so they may only be missing for a
// while, and every restart waits. Malformed data and NaN are not restarted when they come
// twice in a row at the same step, or, if no step is known, with the same text after about the same
// time.
Decision decide_restart(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before = 0);

}  // namespace mgpu::launcher
