#pragma once

#include <algorithm>
#include <cstdint>

namespace mgpu::rollout {

// How long a completion is expected to become: the tokens that all completions have so far, divided
// by the number of those that have ended. So long completions that go on count too. It begins as
// if four completions had ended at a quarter of the maximum.
class LengthEstimate {
 public:
  explicit LengthEstimate(std::int64_t most) : most_(most), tokens_(most) {}

  void add_token() { ++tokens_; }
  void add_end() { ++ended_; }

  std::int64_t value() const {
    return std::clamp<std::int64_t>(tokens_ / ended_, 1, std::max<std::int64_t>(1, most_));
  }

 private:
  std::int64_t most_;
  std::int64_t tokens_;
  std::int64_t ended_ = 4;
};

}  // namespace mgpu::rollout
