#pragma once

#include <optional>

namespace mgpu::grpo {

// beta, moved so that the divergence from the reference stays near a target: half as much again
// where it is above twice the target, half where it is below half of it, within 0.01 and 1. Without
// a target it stays. All there is to save is beta().
class AdaptiveKl {
 public:
  AdaptiveKl(double beta, std::optional<double> target) : beta_(beta), target_(target) {}

  double beta() const { return beta_; }
  void restore(double beta) { beta_ = beta; }
  void step(double kl);  // of an optimizer step, as it is logged; NaN changes nothing

 private:
  double beta_;
  std::optional<double> target_;
};

// entropy_coef, moved by a fixed amount after every step: up while the entropy is at or below its
// target, else down. It is applied only in steps that follow such a low entropy.
class AdaptiveEntropy {
 public:
  struct Options {
    bool adaptive = false;  // else `coefficient` is applied as it is
    double target = .2, delta = .005, least = 0, most = 1;
  };
  struct State {
    double coefficient = 0;
    std::optional<double> last;  // entropy of the last step
    friend bool operator==(const State&, const State&) = default;
  };

  AdaptiveEntropy(double coefficient, const Options& options)
      : options_(options), state_{.coefficient = coefficient, .last = {}} {}

  double applied() const;  // what LossSettings::entropy_coef is to be
  double coefficient() const { return state_.coefficient; }  // what is logged
  bool enabled() const { return options_.adaptive || state_.coefficient != 0; }
  // `entropy` is the mean of a step's tokens over all ranks; NaN changes nothing.
  void step(double entropy);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  Options options_;
  State state_;
};

}  // namespace mgpu::grpo
