#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace mgpu::train {

// Whether this rank passes on a signal that requests a checkpoint. Such a signal is sent to all
// ranks and reaches them in different steps: the first rank's request saves a checkpoint for all,
// and those of the other ranks are not passed on after that.
class SaveRequests {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Called before a step, or several times before it. `signalled`: since the last call.
  bool take(bool signalled, std::int64_t step, Time now);
  // The outcome of a step: whether any rank has requested a checkpoint in it.
  void record(std::int64_t step, bool requested, Time now);

 private:
  std::optional<std::int64_t> own_step_;  // of the last request that was passed on
  bool next_is_same_ = false;             // a signal that arrived before the next take()
  std::optional<Time> same_until_;
};

}  // namespace mgpu::train
