#pragma once

#include <algorithm>

#include "rendezvous/heartbeat.hpp"

namespace mgpu::rendezvous {

// A token bucket: allows `per_second` on average, and bursts of up to `burst`.
class RateLimit {
 public:
  RateLimit(double per_second, double burst)
      : per_second_(per_second), burst_(burst), available_(burst) {}

  double per_second() const { return per_second_; }

  // False if `amount` is more than is available; then nothing is taken.
  bool take(double amount, Nanoseconds now) {
    const std::chrono::duration<double> since = now - std::max(last_, Nanoseconds(0));
    if (last_.count() != 0) available_ = std::min(burst_, available_ + per_second_ * since.count());
    last_ = now;
    if (amount > available_) return false;
    available_ -= amount;
    return true;
  }

 private:
  double per_second_, burst_, available_;
  Nanoseconds last_{0};
};

}  // namespace mgpu::rendezvous
