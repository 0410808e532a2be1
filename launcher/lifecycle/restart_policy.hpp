#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {

struct Decision {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  std::string why;  // why there is no restart although some were left; for the user
  int counted = 0;  // restarts against the limit, with this one
};

// One attempt that failed: why, how long after its start, and the last step that a rank reported;
// -1: none.
struct FailedAttempt {
  Cause::Kind cause;
  std::chrono::milliseconds lasted;
  std::int64_t last_step = -1;
  bool of_node = false;  // a node that is no longer part of the job has caused it
};

struct RestartLimits {
  int max_restarts = 0;
  // Before the second restart, doubled for each further one.
  std::chrono::milliseconds retry_delay{0};
  // An attempt that went beyond the last step of all before it makes all restarts available again.
  bool renewed_by_progress = false;
};

// Decides whether the ranks are restarted. `history` has the failed attempts so far, the newest
// last; `before` is the number of earlier failed attempts of which nothing is known. The first
// restart is immediate, and so is one after progress, if that renews restarts. A cause that a
// restart does not fix (see is_retryable) ends the job early when it occurs twice in a row within 5
// s of the start; every other failure uses all restarts.
Decision decide_restart(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before = 0);

}  // namespace mgpu::launcher
