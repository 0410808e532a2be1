#include "runtime/grpo/control.hpp"

#include <algorithm>
#include <cmath>

namespace mgpu::grpo {
namespace {

constexpr double kLowBeta = .01, kHighBeta = 1;

}  // namespace

void AdaptiveKl::step(double kl) {
  if (!target_ || !std::isfinite(kl)) return;
  if (kl > 2 * *target_)
    beta_ = std::min(beta_ * 1.5, std::max(beta_, kHighBeta));
  else if (kl < .5 * *target_)
    beta_ = std::max(beta_ * .5, std::min(beta_, kLowBeta));
}

double AdaptiveEntropy::applied() const {
  if (!options_.adaptive) return state_.coefficient;
  return state_.last && *state_.last <= options_.target ? state_.coefficient : 0;
}

void AdaptiveEntropy::step(double entropy) {
  if (!options_.adaptive || !std::isfinite(entropy)) return;
  const auto [low, high] = std::pair(options_.min, options_.max);
  auto& coefficient = state_.coefficient;
  if (entropy <= options_.target)
    coefficient = std::min(coefficient + options_.delta, high);
  else
    coefficient = std::max(coefficient - options_.delta, low);
  state_.last = entropy;
}

}  // namespace mgpu::grpo
