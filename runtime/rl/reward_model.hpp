#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/placement.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// The files of a reward model: a ...ForSequenceClassification with one label.
struct RewardModelSource {
  std::string name;   // the last part of the path
  std::size_t index;  // in reward_funcs
  train::ModelSource model;
  at::Tensor head;  // fp32 [1, hidden]
};

// Whether an entry of reward_funcs is a model folder, not the name of a reward function or rule.
bool is_reward_model(const std::string& entry, const rewards::Settings& settings);

// Its name in metrics: the last part of the path.
std::string reward_model_name(const std::string& folder);

// Opens entry `index` of reward_funcs, a folder with a config.json. Throws rewards::RewardError if
// it is another kind of model.
RewardModelSource open_reward_model(const std::string& folder, std::size_t index);

// Throws rewards::RewardError if prompts are conversations and the model has no chat template.
void require_chat_template(const RewardModelSource& source, const std::vector<Prompt>& prompts);

// A model that scores completions. The score is the logit at the last token of prompt and
// completion, which are encoded with the model's own tokenizer and chat template.
class RewardModel {
 public:
  struct Options {
    train::Role role;
    at::Device device = at::kCPU;  // on which this rank trains
    at::ScalarType dtype = at::kFloat;
    nlohmann::ordered_json template_extra = nlohmann::ordered_json::object();
  };
  RewardModel(RewardModelSource source, const Options& options, comm::Comm& comm);

  const std::string& name() const { return source_.name; }
  std::size_t index() const { return source_.index; }
  std::int64_t longest() const { return source_.model.config.longest_sequence(); }
  const Placement& placement() const { return placement_; }

  // One score per completion; none if the text does not fit into the model's context. Call it only
  // on ranks that compute the model; with sharded weights all ranks call it. Throws
  // rewards::RewardError.
  std::vector<rewards::Score> score(std::span<const ScoredCompletion> completions,
                                    const std::vector<Prompt>& prompts);

 private:
  using Tokens = std::vector<std::int32_t>;

  Tokens encode(const ScoredCompletion& completion, const Prompt& prompt) const;
  std::vector<float> logits(const std::vector<const Tokens*>& texts);

  RewardModelSource source_;
  data::TextEncoder encoder_;
  nlohmann::ordered_json template_extra_;
  std::optional<std::int32_t> padding_;
  Placement placement_;
  std::unique_ptr<parallel::Shards> shards_;
  model::Transformer transformer_;
  at::Tensor head_;
};

}  // namespace mgpu::rl
