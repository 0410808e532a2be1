#pragma once

#include <map>
#include <string>

#include "runtime/grpo/control.hpp"
#include "runtime/grpo/loss_settings.hpp"

namespace mgpu::grpo {

// The settings of the loss from step to step: beta and entropy_coef may adapt, the others are
// constant.
class LossControl {
 public:
  struct State {
    double beta = 0;
    AdaptiveEntropy::State entropy;
    friend bool operator==(const State&, const State&) = default;
  };

  LossControl(const LossSettings& settings, const AdaptiveKl& kl, const AdaptiveEntropy& entropy)
      : settings_(settings), kl_(kl), entropy_(entropy) {}

  LossSettings settings() const;  // of the next step
  bool has_reference() const { return kl_.beta() != 0; }
  // Whether a completion whose advantage is 0 has no gradient, nor any effect on that of others in
  // its micro-batch.
  bool only_advantages_matter() const;

  // Adapts to the metrics of a step, kl and entropy, and adds the coefficients to them.
  void adapt(std::map<std::string, double>& metrics);

  State state() const { return {.beta = kl_.beta(), .entropy = entropy_.state()}; }
  // Continues from a saved state. A coefficient that does not adapt keeps the recipe's value.
  void restore(const State& state);

 private:
  LossSettings settings_;
  AdaptiveKl kl_;
  AdaptiveEntropy entropy_;
};

}  // namespace mgpu::grpo
