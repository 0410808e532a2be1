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
#include "runtime/rl/experience.hpp"
#include "runtime/rl/placement.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// The files of a model with a head for one number: a ...ForSequenceClassification with one label.
struct RewardModelSource {
  std::string name;   // the last part of the path
  std::size_t place;  // in reward_funcs
  train::ModelSource model;
  at::Tensor head;  // fp32 [1, hidden]
};

// Whether an entry of reward_funcs is a model's folder, and not a name that stands for something.
bool is_reward_model(const std::string& entry, const rewards::Settings& settings);

// What it is called in metrics: the last part of the path.
std::string reward_model_name(const std::string& folder);

// Opens the entry of reward_funcs at `place`, a folder with a config.json. Throws
// rewards::RewardError where it is another kind of model.
RewardModelSource open_reward_model(const std::string& folder, std::size_t place);

// Throws rewards::RewardError where prompts are conversations and it has no template for them.
void expect_prompts(const RewardModelSource& source, const std::vector<Question>& questions);

// A model that says what completions are worth: the logit behind the last token of prompt and
// completion, both as its own tokenizer and chat template have them.
class RewardModel {
 public:
  struct Options {
    train::Role role;
    at::Device device = at::kCPU;  // that this rank learns on
    at::ScalarType dtype = at::kFloat;
    nlohmann::ordered_json template_extra = nlohmann::ordered_json::object();
  };
  RewardModel(RewardModelSource source, const Options& options, comm::Comm& comm);

  const std::string& name() const { return source_.name; }
  std::size_t place() const { return source_.place; }
  std::int64_t longest() const { return source_.model.config.max_position; }
  const Placement& post() const { return post_; }

  // One score a completion; nothing where it does not fit into the model's context. Where it is
  // computed with; if weights are spread all ranks call it. Throws rewards::RewardError.
  std::vector<rewards::Score> score(std::span<const Sample> samples,
                                    const std::vector<Question>& questions);

 private:
  using Tokens = std::vector<std::int32_t>;

  Tokens read(const Sample& sample, const Question& question) const;
  std::vector<float> values(const std::vector<const Tokens*>& texts);

  RewardModelSource source_;
  data::TextEncoder encoder_;
  nlohmann::ordered_json template_extra_;
  std::optional<std::int32_t> padding_;
  Placement post_;
  std::unique_ptr<parallel::Shards> provider_;
  model::Transformer transformer_;
  at::Tensor head_;
};

}  // namespace mgpu::rl
