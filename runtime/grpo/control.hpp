#pragma once

#include <optional>

namespace mgpu::grpo {

// Adapts beta so that the divergence from the reference model stays near a target: beta * 1.5 if it
// is above twice the target, beta / 2 if it is below half the target. It is raised up to 1 and
// lowered down to 0.01; a beta that begins outside this range only moves towards it. Without a
// target beta is constant. beta() is the whole state.
class AdaptiveKl {
 public:
  AdaptiveKl(double beta, std::optional<double> target) : beta_(beta), target_(target) {}

  double beta() const { return beta_; }
  bool adaptive() const { return target_.has_value(); }
  void restore(double beta) { beta_ = beta; }
  void step(double kl);  // the logged kl of an optimizer step; NaN is ignored

 private:
  double beta_;
  std::optional<double> target_;
};

// Adapts entropy_coef by a fixed amount after every step: up while the entropy is at or below its
// target, else down. It is applied only in steps that follow an entropy at or below the target.
class AdaptiveEntropy {
 public:
  struct Options {
    bool adaptive = false;  // false: `coefficient` is constant
    double target = .2, delta = .005, min = 0, max = 1;
  };
  struct State {
    double coefficient = 0;
    std::optional<double> last;  // entropy of the last step
    friend bool operator==(const State&, const State&) = default;
  };

  AdaptiveEntropy(double coefficient, const Options& options)
      : options_(options), state_{.coefficient = coefficient, .last = {}} {}

  double applied() const;  // the value for LossSettings::entropy_coef
  double coefficient() const { return state_.coefficient; }  // the logged value
  bool adaptive() const { return options_.adaptive; }
  bool enabled() const { return options_.adaptive || state_.coefficient != 0; }
  // `entropy` is the mean over a step's tokens of all ranks; NaN is ignored.
  void step(double entropy);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  Options options_;
  State state_;
};

}  // namespace mgpu::grpo
