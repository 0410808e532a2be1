#include "runtime/train/save_requests.hpp"

#include <cstdlib>

namespace mgpu::train {
namespace {

// The outcome of a step is read when this rank has begun the step after it.
constexpr std::int64_t kStepsInFlight = 2;
// More than a signal needs to reach all nodes.
constexpr auto kLongestDelay = std::chrono::seconds(10);

}  // namespace

bool SaveRequests::take(bool signalled, std::int64_t step, Time now) {
  const bool is_same = next_is_same_ || (same_until_ && now < *same_until_);
  next_is_same_ = false;
  if (!signalled) return false;
  same_until_.reset();
  if (is_same) return false;
  own_step_ = step;
  return true;
}

void SaveRequests::record(std::int64_t step, bool requested, Time now) {
  if (!requested || (own_step_ && std::abs(step - *own_step_) <= kStepsInFlight)) return;
  next_is_same_ = true;
  same_until_ = now + kLongestDelay;
}

}  // namespace mgpu::train
