#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {

struct Decision {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  std::string why;  // for people, when there is no restart although some were left
};

// One attempt that failed: why, and how long after its start.
struct FailedAttempt {
  Cause::Kind cause;
  std::chrono::milliseconds lasted;
};

struct RestartLimits {
  int max_restarts = 0;
  std::chrono::milliseconds retry_delay{
      0};  // before the second restart, doubled for each further one
};

// Decides whether the group starts again. `history` holds every failed attempt so far, the
// newest last, but for `before` earlier ones of which no more is known than that they were. The
// first restart is immediate. A cause that cannot heal by itself (see Cause::is_retryable) that
// comes twice in a row within 5 s of the start ends the job early; every other failure uses all
// restarts there are.
Decision decide_restart(const std::vector<FailedAttempt>& history, const RestartLimits& limits,
                        int before = 0);

}  // namespace mgpu::launcher
