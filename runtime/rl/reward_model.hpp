#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/config/planning/role_memory.hpp"
#include "runtime/encoder/deberta_config.hpp"
#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/placement.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rl/reward_model_files.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// The files of a reward model: a ...ForSequenceClassification with one label.
struct RewardModelSource {
  std::string name;   // the last part of the path
  std::size_t index;  // in the list of rewards
  train::ModelSource model;
  at::Tensor head;                                // of a decoder: fp32 [1, hidden]
  std::optional<encoder::DebertaConfig> deberta;  // set for an encoder; model.config is then unused
};

// What the memory estimate needs of it.
train::RoleRequest::RewardModel reward_model_memory(const RewardModelSource& source);

// Opens entry `index` of the list of rewards. Throws rewards::RewardError if it is another kind of
// model.
RewardModelSource open_reward_model(const std::string& entry, std::size_t index);

// Throws rewards::RewardError if prompts are conversations and the model, a decoder, has no chat
// template.
void require_chat_template(const RewardModelSource& source, const std::vector<Prompt>& prompts);

// A model that scores completions.
class RewardModel {
 public:
  struct Options {
    train::Role role;
    at::Device device = at::kCPU;  // on which this rank trains
    at::ScalarType dtype = at::kFloat;
    nlohmann::ordered_json template_extra = nlohmann::ordered_json::object();
  };
  virtual ~RewardModel() = default;

  const std::string& name() const { return source_.name; }
  std::size_t index() const { return source_.index; }
  const Placement& placement() const { return placement_; }
  virtual std::int64_t longest() const = 0;  // in tokens

  // One score per completion; none if its text cannot be scored because of its length. Call it only
  // on ranks that compute the model; with sharded weights all ranks call it. Throws
  // rewards::RewardError.
  virtual std::vector<rewards::Score> score(std::span<const ScoredCompletion> completions,
                                            const std::vector<Prompt>& prompts) = 0;

 protected:
  RewardModel(RewardModelSource opened, const Options& options, comm::Comm& comm)
      : source_(std::move(opened)), placement_(options.role, options.device, comm) {}
  const RewardModelSource& source() const { return source_; }

 private:
  RewardModelSource source_;
  Placement placement_;
};

// Loads the weights.
std::unique_ptr<RewardModel> load_reward_model(RewardModelSource source,
                                               const RewardModel::Options& options,
                                               comm::Comm& comm);

}  // namespace mgpu::rl
