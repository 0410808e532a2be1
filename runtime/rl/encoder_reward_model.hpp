#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/encoder/deberta.hpp"
#include "runtime/rl/reward_model.hpp"

namespace mgpu::rl {

// A DeBERTa classifier. It reads prompt and completion as a pair of texts, and its whole weights
// are on every rank that computes it, in fp32.
class EncoderRewardModel : public RewardModel {
 public:
  EncoderRewardModel(RewardModelSource opened, const Options& options, comm::Comm& comm);

  // Longer pairs are cut.
  std::int64_t longest() const override { return source().deberta->longest; }
  std::vector<rewards::Score> score(std::span<const ScoredCompletion> completions,
                                    const std::vector<Prompt>& prompts) override;

 private:
  encoder::TypedTokens encode(const ScoredCompletion& completion, const Prompt& prompt) const;

  std::optional<encoder::Deberta> model_;  // on ranks that compute it
};

// The text that a prompt is for an encoder: a conversation's contents without the system message.
// Throws std::runtime_error if a content is not a text.
std::string question_of(const Prompt& prompt);

}  // namespace mgpu::rl
