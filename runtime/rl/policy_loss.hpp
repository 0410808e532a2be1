#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/grpo/loss.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/rl/experience.hpp"
#include "runtime/rl/prompts.hpp"

namespace mgpu::rl {

// A sample's part in a micro-batch.
struct Member {
  const Sample* sample = nullptr;
  bool counts = true;
};

// Prompts and completions end to end; the completions' tokens are the labels.
data::Batch lay_out(std::span<const Member> members, const std::vector<Question>& questions);

// The loss of one micro-batch of samples.
class PolicyLoss : public model::Objective {
 public:
  // Turns entropies of this rank's tokens into the threshold over those of all ranks; empty: every
  // token learns.
  using Threshold = std::function<at::Tensor(const at::Tensor& entropies)>;

  PolicyLoss(std::span<const Member> members, const grpo::LossSettings& settings,
             const grpo::Denominators& denominators, Threshold threshold, at::Device device);

  ops::TokenSlopes slopes(const ops::TokenScores& scores) override;

  const grpo::Loss& loss() const { return loss_; }

 private:
  const grpo::LossSettings& settings_;
  const grpo::Denominators& denominators_;
  Threshold threshold_;
  grpo::LossInput input_;
  grpo::Loss loss_;
};

}  // namespace mgpu::rl
