#pragma once

#include <algorithm>

#include "rendezvous/heartbeat.hpp"

namespace mgpu::rendezvous {

// So much a second, and what was not used is saved up to a most.
class RateLimit {
 public:
  RateLimit(double a_second, double most) : a_second_(a_second), most_(most), left_(most) {}

  double a_second() const { return a_second_; }

  // False when that is more than is left; then nothing is taken.
  bool take(double amount, Nanoseconds now) {
    const std::chrono::duration<double> since = now - std::max(last_, Nanoseconds(0));
    if (last_.count() != 0) left_ = std::min(most_, left_ + a_second_ * since.count());
    last_ = now;
    if (amount > left_) return false;
    left_ -= amount;
    return true;
  }

 private:
  double a_second_, most_, left_;
  Nanoseconds last_{0};
};

}  // namespace mgpu::rendezvous
