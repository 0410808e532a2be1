#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {

struct Decision {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  std::string why;  // why there is no restart although some were left; for the user
};

// One attempt that failed: why, and how long after its start.
struct FailedAttempt {
  Cause::Kind cause;
  std::chrono::milliseconds lasted;
};

struct RestartLimits {
  int max_restarts = 0;
  // Before the second restart, doubled for each further one.
  std::chrono::milliseconds retry_delay{0};
};

// Decides whether the ranks are restarted. `history` has the failed attempts so far, the newest
// last; `before` is the number of earlier failed attempts whose causes are unknown. The first
// restart is immediate. A cause that a restart does not fix (see is_retryable) ends the job early
// when it occurs twice in a row within 5 s of the start; every other failure uses all restarts.
Decision decide_restart(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before = 0);

}  // namespace mgpu::launcher
