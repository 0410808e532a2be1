#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/grpo/loss.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/rl/dealer.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/prompts.hpp"

namespace mgpu::rl {

// Prompts and completions concatenated; the completions' tokens are the target tokens, in the order
// of the entries. Neighbouring completions of one prompt share its tokens but the last.
data::Batch batch_of(std::span<const BatchEntry> entries, const std::vector<Prompt>& prompts);

// The loss of one micro-batch of completions.
class PolicyLoss : public model::Objective {
 public:
  // Computes the entropy threshold over the tokens of all ranks from the entropies of this rank's.
  // Empty: every token is trained on.
  using Threshold = std::function<at::Tensor(const at::Tensor& entropies)>;

  PolicyLoss(std::span<const BatchEntry> entries, const grpo::LossSettings& settings,
             const grpo::Denominators& denominators, Threshold threshold, at::Device device);

  ops::TokenSlopes slopes(const ops::TokenScores& scores) override;
  std::optional<ops::TokenSlopes> slopes_without_scores() override;

  const grpo::Loss& loss() const { return loss_; }

 private:
  const grpo::LossSettings& settings_;
  const grpo::Denominators& denominators_;
  Threshold threshold_;
  grpo::LossInput input_;
  grpo::Loss loss_;
};

}  // namespace mgpu::rl
