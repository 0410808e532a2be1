// What models that do not learn say of completions, and the policy as it was.
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "runtime/rl/grpo_trainer.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {

// The models that are spread over the ranks judge each rank's own completions; those that one rank
// holds judge, after they were shared, everybody's.
void GrpoTrainer::consult(std::vector<Sample>& samples, const std::vector<Question>& questions,
                          Consulted who, bool to_learn) {
  const bool held = who == Consulted::held;
  if (to_learn && reference_ && reference_->post().held() == held) refer(samples);
  for (const auto& model : reward_models_)
    if (model->post().held() == held) ask(*model, samples, questions);
}

void GrpoTrainer::refer(std::vector<Sample>& samples) {
  const auto& post = reference_->post();
  if (post.here()) {
    const c10::OptionalDeviceGuard guard(post.device());
    const rollout::WholeWeights whole(source_->config, reference_->provider());
    look_back(samples, true);
  }
  if (!post.held()) return;
  std::vector<float> all;
  for (const auto& sample : samples)
    for (std::size_t i = 0; i < sample.tokens.size(); ++i)
      all.push_back(post.here() ? sample.ref_log_probs[i] : 0);
  send_to_all(all, post.holder(), *comm_, device_, "what the reference says");
  const auto* value = all.data();
  for (auto& sample : samples) {
    sample.ref_log_probs.assign(value, value + sample.tokens.size());
    value += sample.tokens.size();
  }
}

// Functions have judged before; a model's score goes where reward_funcs has it.
void GrpoTrainer::ask(RewardModel& model, std::vector<Sample>& samples,
                      const std::vector<Question>& questions) {
  const auto& post = model.post();
  std::vector<float> all(samples.size());
  if (post.here()) {
    const auto scores = model.score(samples, questions);
    std::transform(scores.begin(), scores.end(), all.begin(), [](const rewards::Score& score) {
      return score ? static_cast<float>(*score) : std::numeric_limits<float>::quiet_NaN();
    });
  }
  if (post.held()) send_to_all(all, post.holder(), *comm_, device_, "what a reward model says");
  for (std::size_t i = 0; i < samples.size(); ++i) {
    auto& rewards = samples[i].rewards;
    rewards.insert(rewards.begin() + static_cast<std::ptrdiff_t>(model.place()),
                   std::isnan(all[i]) ? rewards::Score() : rewards::Score(all[i]));
  }
}

// What had no score from a model did not fit into it.
void GrpoTrainer::count_unjudged(const std::vector<Sample>& samples) {
  for (const auto& model : reward_models_)
    unjudged_[model->place()] +=
        std::count_if(samples.begin(), samples.end(),
                      [&](const Sample& sample) { return !sample.rewards[model->place()]; });
}

void GrpoTrainer::tell_unjudged() {
  for (const auto& model : reward_models_)
    if (auto& count = unjudged_[model->place()]; count > 0) {
      reporter_->note(fmt::format(
          "warning: {} completions with their prompts are longer than the {} tokens that reward {} "
          "reads, or empty; they have no score from it",
          count, model->longest(), model->name()));
      count = 0;
    }
}

// The log-probabilities of samples by the policy as it is now, or by the reference.
void GrpoTrainer::look_back(std::vector<Sample>& samples, bool reference) {
  const auto device = reference ? reference_->post().device() : device_;
  const auto at_once = static_cast<std::size_t>(sizes_.per_device);
  for (std::size_t begin = 0; begin < samples.size(); begin += at_once) {
    const auto some = std::span(samples).subspan(begin, std::min(at_once, samples.size() - begin));
    std::vector<Member> members;
    for (const auto& sample : some) members.push_back({&sample, true});
    const auto batch = train::to_device(lay_out(members, questions_.all), device);
    const auto scores =
        reference
            ? reference_->log_probs(batch, temperature_)
            : learner_->transformer().score(batch, temperature_, learner_->shards()).log_probs;
    const auto here = scores.cpu();
    const auto* value = here.const_data_ptr<float>();
    for (auto& sample : some) {
      auto& list = reference ? sample.ref_log_probs : sample.old_log_probs;
      list.assign(value, value + sample.tokens.size());
      value += sample.tokens.size();
    }
  }
}

}  // namespace mgpu::rl
