#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/text_encoder.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/rl/reward_model.hpp"

namespace mgpu::rl {

// A model of a family that can be trained. The score is the logit at the last token of prompt and
// completion, which are encoded with the model's own tokenizer and chat template.
class DecoderRewardModel : public RewardModel {
 public:
  DecoderRewardModel(RewardModelSource opened, const Options& options, comm::Comm& comm);

  std::int64_t longest() const override { return source().model.config.longest_sequence(); }
  std::vector<rewards::Score> score(std::span<const ScoredCompletion> completions,
                                    const std::vector<Prompt>& prompts) override;

 private:
  using Tokens = std::vector<std::int32_t>;

  Tokens encode(const ScoredCompletion& completion, const Prompt& prompt) const;
  std::vector<float> logits(const std::vector<const Tokens*>& texts);

  data::TextEncoder encoder_;
  nlohmann::ordered_json template_extra_;
  std::optional<std::int32_t> padding_;
  std::unique_ptr<parallel::Shards> shards_;
  model::Transformer transformer_;
  at::Tensor head_;
};

}  // namespace mgpu::rl
