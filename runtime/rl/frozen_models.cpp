#include "runtime/rl/frozen_models.hpp"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/config/grpo_values.hpp"
#include "runtime/rl/log_probs.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rl {

FrozenModels::FrozenModels(const train::TrainConfig& config, const Policy& policy,
                           const train::Roles& roles, Sources sources, StepSeconds& seconds)
    : policy_(policy), seconds_(seconds) {
  const train::GrpoValues values(config);
  const auto& model = policy.learner.options().model;
  if (sources.reference) {
    reference_ = std::make_unique<Reference>(config, policy.source, sources.adapter, model,
                                             roles.reference, policy.learner.shards(), policy.comm);
    if (values.flag("sync_ref_model")) {
      sync_every_ = values.whole("ref_model_sync_steps").value_or(512);
      sync_share_ = values.number("ref_model_mixup_alpha").value_or(.6);
    }
  }
  const RewardModel::Options options{.role = roles.reward,
                                     .device = policy.device,
                                     .dtype = model.dtype,
                                     .template_extra = prompt_options(config).template_extra};
  for (auto& source : sources.rewards)
    rewards_.push_back(load_reward_model(std::move(source), options, policy.comm));
}

void FrozenModels::score_own(std::vector<ScoredCompletion>& completions,
                             const std::vector<Prompt>& prompts, bool for_training) {
  score(completions, prompts, false, for_training);
}

void FrozenModels::score_gathered(std::vector<ScoredCompletion>& completions,
                                  const std::vector<Prompt>& prompts, bool for_training) {
  score(completions, prompts, true, for_training);
}

void FrozenModels::score(std::vector<ScoredCompletion>& completions,
                         const std::vector<Prompt>& prompts, bool resident, bool for_training) {
  if (for_training && reference_ && reference_->placement().resident() == resident)
    add_reference_log_probs(completions, prompts);
  for (const auto& model : rewards_)
    if (model->placement().resident() == resident) add_rewards(*model, completions, prompts);
}

void FrozenModels::add_reference_log_probs(std::vector<ScoredCompletion>& completions,
                                           const std::vector<Prompt>& prompts) {
  const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::look_back);
  const auto& placement = reference_->placement();
  if (placement.local()) {
    const c10::OptionalDeviceGuard guard(placement.device());
    const rollout::GatheredWeights whole(policy_.source.config, reference_->provider());
    set_log_probs(completions, prompts,
                  {.list = &ScoredCompletion::ref_log_probs,
                   .at_once = policy_.per_device,
                   .most_tokens = policy_.micro_batch_tokens,
                   .device = placement.device(),
                   .score = [this](const model::DeviceBatch& batch) {
                     return reference_->log_probs(batch, policy_.temperature);
                   }});
  }
  if (!placement.resident()) return;
  std::vector<float> all;
  for (const auto& completion : completions)
    for (std::size_t i = 0; i < completion.tokens.size(); ++i)
      all.push_back(placement.local() ? completion.ref_log_probs[i] : 0);
  broadcast_floats(all, placement.resident_rank(), policy_.comm, policy_.device,
                   "the reference log-probabilities");
  divide_log_probs(all, completions, &ScoredCompletion::ref_log_probs);
}

void FrozenModels::add_rewards(RewardModel& model, std::vector<ScoredCompletion>& completions,
                               const std::vector<Prompt>& prompts) {
  const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::reward);
  const auto& placement = model.placement();
  std::vector<float> all(completions.size());
  if (placement.local()) {
    const auto scores = model.score(completions, prompts);
    std::transform(scores.begin(), scores.end(), all.begin(), [](const rewards::Score& score) {
      return score ? static_cast<float>(*score) : std::numeric_limits<float>::quiet_NaN();
    });
  }
  if (placement.resident())
    broadcast_floats(all, placement.resident_rank(), policy_.comm, policy_.device,
                     "the scores of a reward model");
  for (std::size_t i = 0; i < completions.size(); ++i) {
    auto& rewards = completions[i].rewards;
    rewards.insert(rewards.begin() + static_cast<std::ptrdiff_t>(model.index()),
                   std::isnan(all[i]) ? rewards::Score() : rewards::Score(all[i]));
  }
}

// A completion without a score from a model did not fit into the model's context.
void FrozenModels::count_unscored(const std::vector<ScoredCompletion>& completions) {
  for (const auto& model : rewards_)
    unscored_[model->index()] += std::count_if(
        completions.begin(), completions.end(),
        [&](const ScoredCompletion& completion) { return !completion.rewards[model->index()]; });
}

std::vector<std::string> FrozenModels::take_warnings() {
  std::vector<std::string> lines;
  for (const auto& model : rewards_)
    if (auto& count = unscored_[model->index()]; count > 0) {
      lines.push_back(fmt::format(
          "warning: {} completions with their prompts are empty or longer than the {} tokens that "
          "reward {} supports; they have no score from it",
          count, model->longest(), model->name()));
      count = 0;
    }
  return lines;
}

void FrozenModels::move_reference(std::int64_t step) {
  if (reference_ && sync_every_ > 0 && step % sync_every_ == 0)
    reference_->move(policy_.learner.shards(), sync_share_);
}

std::optional<checkpoint::FileRecord> FrozenModels::write(const std::string& checkpoint_folder) {
  if (!reference_ || !reference_->moved()) return {};
  return reference_->write(checkpoint_folder);
}

void FrozenModels::read(const std::string& checkpoint_folder) {
  if (reference_) reference_->read(checkpoint_folder);
}

}  // namespace mgpu::rl
