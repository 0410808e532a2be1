// Scores from models that are not trained: the reference model, reward models and the old policy.
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "runtime/rl/grpo_trainer.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {

// Sharded models score each rank's own completions. A model that is resident on one rank scores the
// completions of all ranks, after they were gathered.
void GrpoTrainer::score_with_models(std::vector<ScoredCompletion>& completions,
                                    const std::vector<Prompt>& prompts, ModelPlacement where,
                                    bool for_training) {
  const bool resident = where == ModelPlacement::resident;
  if (for_training && reference_ && reference_->placement().resident() == resident)
    add_reference_log_probs(completions);
  for (const auto& model : reward_models_)
    if (model->placement().resident() == resident)
      score_with_reward_model(*model, completions, prompts);
}

void GrpoTrainer::add_reference_log_probs(std::vector<ScoredCompletion>& completions) {
  const auto& placement = reference_->placement();
  if (placement.local()) {
    const c10::OptionalDeviceGuard guard(placement.device());
    const rollout::GatheredWeights whole(source_->config, reference_->provider());
    add_log_probs(completions, true);
  }
  if (!placement.resident()) return;
  std::vector<float> all;
  for (const auto& completion : completions)
    for (std::size_t i = 0; i < completion.tokens.size(); ++i)
      all.push_back(placement.local() ? completion.ref_log_probs[i] : 0);
  broadcast_floats(all, placement.resident_rank(), *comm_, device_,
                   "the reference log-probabilities");
  const auto* value = all.data();
  for (auto& completion : completions) {
    completion.ref_log_probs.assign(value, value + completion.tokens.size());
    value += completion.tokens.size();
  }
}

// The reward functions have scored before; a model's score is inserted at its index in
// reward_funcs.
void GrpoTrainer::score_with_reward_model(RewardModel& model,
                                          std::vector<ScoredCompletion>& completions,
                                          const std::vector<Prompt>& prompts) {
  const auto& placement = model.placement();
  std::vector<float> all(completions.size());
  if (placement.local()) {
    const auto scores = model.score(completions, prompts);
    std::transform(scores.begin(), scores.end(), all.begin(), [](const rewards::Score& score) {
      return score ? static_cast<float>(*score) : std::numeric_limits<float>::quiet_NaN();
    });
  }
  if (placement.resident())
    broadcast_floats(all, placement.resident_rank(), *comm_, device_,
                     "the scores of a reward model");
  for (std::size_t i = 0; i < completions.size(); ++i) {
    auto& rewards = completions[i].rewards;
    rewards.insert(rewards.begin() + static_cast<std::ptrdiff_t>(model.index()),
                   std::isnan(all[i]) ? rewards::Score() : rewards::Score(all[i]));
  }
}

// A completion without a score from a model did not fit into the model's context.
void GrpoTrainer::count_unscored(const std::vector<ScoredCompletion>& completions) {
  for (const auto& model : reward_models_)
    unscored_[model->index()] += std::count_if(
        completions.begin(), completions.end(),
        [&](const ScoredCompletion& completion) { return !completion.rewards[model->index()]; });
}

void GrpoTrainer::report_unscored() {
  for (const auto& model : reward_models_)
    if (auto& count = unscored_[model->index()]; count > 0) {
      reporter_->note(fmt::format(
          "warning: {} completions with their prompts are empty or longer than the {} tokens that "
          "reward {} supports; they have no score from it",
          count, model->longest(), model->name()));
      count = 0;
    }
}

// Adds the completions' log-probabilities under the current policy or the reference model.
void GrpoTrainer::add_log_probs(std::vector<ScoredCompletion>& completions, bool reference) {
  const auto device = reference ? reference_->placement().device() : device_;
  const auto at_once = static_cast<std::size_t>(sizes_.per_device);
  for (std::size_t begin = 0; begin < completions.size(); begin += at_once) {
    const auto some =
        std::span(completions).subspan(begin, std::min(at_once, completions.size() - begin));
    std::vector<BatchEntry> entries;
    for (const auto& completion : some) entries.push_back({&completion, true});
    const auto batch = train::to_device(batch_of(entries, prompts_.all), device);
    const auto scores =
        reference
            ? reference_->log_probs(batch, temperature_)
            : learner_->transformer().score(batch, temperature_, learner_->shards()).log_probs;
    const auto host = scores.cpu();
    const auto* value = host.const_data_ptr<float>();
    for (auto& completion : some) {
      auto& list = reference ? completion.ref_log_probs : completion.old_log_probs;
      list.assign(value, value + completion.tokens.size());
      value += completion.tokens.size();
    }
  }
}

}  // namespace mgpu::rl
