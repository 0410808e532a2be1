#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace mgpu::rl {

// How long the phases of a step take on this rank.
class StepSeconds {
  using Clock = std::chrono::steady_clock;

 public:
  enum class Phase {
    weights,    // giving the generator the weights of the policy
    rollout,    // generating
    reward,     // reward functions and reward models
    look_back,  // log-probabilities of the policy that generated, and of the reference model
    update,
  };

  // Adds the time until its end to a phase.
  class Scope {
   public:
    Scope(StepSeconds& all, Phase phase) : sum_(all.of(phase)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { sum_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }

   private:
    double& sum_;
    Clock::time_point begin_ = Clock::now();
  };

  // All phases since the last call, as metrics such as `rollout_time`.
  std::map<std::string, double> take() {
    const auto s = std::exchange(seconds_, {});
    return {{"weights_time", s[0]},
            {"rollout_time", s[1]},
            {"reward_time", s[2]},
            {"look_back_time", s[3]},
            {"update_time", s[4]}};
  }

 private:
  double& of(Phase phase) { return seconds_[static_cast<std::size_t>(phase)]; }

  std::array<double, 5> seconds_{};
};

}  // namespace mgpu::rl
