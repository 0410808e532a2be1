#include "runtime/rl/rollout_collector.hpp"

#include <ATen/ops/full.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "rendezvous/base/seeds.hpp"
#include "runtime/grpo/generation_plan.hpp"
#include "runtime/profiling/range.hpp"
#include "runtime/rl/item_metrics.hpp"
#include "runtime/rl/log_probs.hpp"
#include "runtime/rl/meter.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rl {

RolloutCollector::RolloutCollector(const Policy& policy, const Recommendation& recommendation,
                                   FrozenModels& models, StepSeconds& seconds,
                                   std::unique_ptr<Generator> generator, RecipeRewards rewards,
                                   CompletionsLog log, const Options& options)
    : policy_(policy),
      recommendation_(recommendation),
      models_(models),
      seconds_(seconds),
      generator_(std::move(generator)),
      rewards_(std::move(rewards)),
      log_(std::move(log)),
      options_(options) {}

namespace {

using Clock = std::chrono::steady_clock;

// When a rank that began to generate at `begin` must have its scores. The others may wait for it
// since then.
rewards::Deadline scoring_deadline(Clock::time_point begin, std::chrono::milliseconds limit) {
  return std::max(begin + limit * 9 / 10, Clock::now() + limit / 10);
}

// Completions, prompt by prompt, as rewards see them. `first` is the number of the first prompt.
class ScoredViews {
 public:
  ScoredViews(const std::vector<ScoredCompletion>& completions, const GenerationRequest& request,
              std::size_t first) {
    const auto group = static_cast<std::size_t>(request.group);
    for (std::size_t i = 0; i < completions.size(); i += group) {
      const auto& prompt = request.prompts[completions[i].prompt];
      rows_.push_back(nlohmann::json::parse(prompt.row));
      prompts_.push_back(prompt.messages.empty() ? nlohmann::json(prompt.text)
                                                 : nlohmann::json::parse(prompt.messages));
    }
    for (std::size_t i = 0; i < completions.size(); ++i)
      views_.push_back({.completion = completions[i].text,
                        .row = &rows_[i / group],
                        .ids = completions[i].tokens,
                        .truncated = !completions[i].terminated,
                        .group = first + i / group,
                        .prompt = &prompts_[i / group]});
  }

  std::span<const rewards::CompletionView> all() const { return views_; }

 private:
  std::vector<nlohmann::json> rows_, prompts_;
  std::vector<rewards::CompletionView> views_;
};

}  // namespace

std::optional<Generation> RolloutCollector::collect(const GenerationRequest& request) {
  auto& comm = policy_.comm;
  std::vector<std::int64_t> lengths;
  for (const auto index : request.selected)
    lengths.push_back(static_cast<std::int64_t>(request.prompts[index].tokens.size()));
  const auto spread = grpo::spread_prompts(lengths, comm.world());
  {
    const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::weights);
    generator_->sync_weights(request.step);
  }
  std::optional<std::vector<ScoredCompletion>> own;
  {
    // Ranks run different numbers of forward passes, so weights are gathered beforehand: no rank
    // may have to wait for another's shard.
    std::optional<rollout::GatheredWeights> gathered;
    const auto gather = [&] {
      const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::weights);
      if (!gathered) gathered.emplace(policy_.source.config, policy_.learner.shards());
    };
    if (generator_->computes_here()) gather();
    const auto begin = Clock::now();
    own = generate(request, spread[static_cast<std::size_t>(comm.rank())]);
    if (own && !score(*own, request,
                      comm.world() > 1 ? scoring_deadline(begin, options_.collective_limit)
                                       : rewards::Deadline::max()))
      own.reset();
    // Ranks notice a request to stop at different times, so they decide together, here.
    if (!on_all_ranks(own.has_value())) return std::nullopt;
    if (request.for_training && options_.needs_old_log_probs) {
      gather();
      add_old_log_probs(*own, request.prompts);
    }
  }
  models_.score_own(*own, request.prompts, request.for_training);
  Generation generation;
  generation.completions =
      in_prompt_order(gather_completions(*own, comm, policy_.device), spread, request.group);
  models_.score_gathered(generation.completions, request.prompts, request.for_training);
  if (request.for_training) models_.count_unscored(generation.completions);
  add_advantages(generation, request.group);
  if (recommendation_.measures()) {
    const auto found = request.for_training ? recommendation_.found(request.group) : request.group;
    generation.metrics.merge(item_metrics(generation.completions, request.prompts, request.group,
                                          request.decoding.beams ? found : 0));
  }
  return generation;
}

// Whether it is so on every rank.
bool RolloutCollector::on_all_ranks(bool here) const {
  if (policy_.comm.world() == 1) return here;
  const auto ranks =
      at::full({1}, here ? 1.0 : 0.0, at::TensorOptions(policy_.device).dtype(at::kDouble));
  policy_.comm.all_reduce(ranks, "number of ranks that have generated").wait();
  return ranks.item<double>() == policy_.comm.world();
}

// Completions of this rank's prompts, prompt by prompt. `numbers` are those of the prompts among
// the selected ones of all ranks. Nothing if this rank was asked to stop.
std::optional<std::vector<ScoredCompletion>> RolloutCollector::generate(
    const GenerationRequest& request, const std::vector<std::int64_t>& numbers) {
  const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::rollout);
  const auto prompt_of = [&](std::size_t q) {
    return request.selected[static_cast<std::size_t>(numbers[q])];
  };
  std::vector<rollout::Request> requests;
  for (std::size_t q = 0; q < numbers.size(); ++q) {
    rollout::Request rollout_request{request.prompts[prompt_of(q)].tokens, {}};
    const auto number = static_cast<std::uint64_t>(numbers[q]);
    const auto count =
        request.for_training ? recommendation_.generated(request.group) : request.group;
    for (std::int64_t i = 0; i < count; ++i)
      rollout_request.seeds.push_back(rendezvous::derive_seed(
          rendezvous::derive_seed(request.seed, number), static_cast<std::uint64_t>(i)));
    requests.push_back(std::move(rollout_request));
  }
  // Outside rewards score a group while others are still generated.
  std::vector<std::vector<ScoredCompletion>> groups(requests.size());
  const auto finished = [&](std::size_t q, const std::vector<rollout::Completion>& generated) {
    for (const auto& one : generated) {
      auto& completion = groups[q].emplace_back();
      completion.prompt = prompt_of(q);
      completion.terminated = one.stop_reason != rollout::StopReason::length;
      completion.text = policy_.source.tokenizer.decode(one.tokens, true);
      completion.tokens = one.tokens;
      completion.sampler_log_probs = one.log_probs;
    }
    if (request.for_training)
      recommendation_.form_group(groups[q], request.prompts[prompt_of(q)], request.group);
    const ScoredViews views(groups[q], request, q);
    for (const auto& reward : rewards_.functions) reward->begin(views.all());
  };
  if (!generator_->complete(requests, finished, request.stop_requested, request.decoding))
    return std::nullopt;
  std::vector<ScoredCompletion> completions;
  for (auto& group : groups) std::ranges::move(group, std::back_inserter(completions));
  return completions;
}

// Adds the scores of the reward functions. Returns false if this rank was asked to stop before the
// last function.
bool RolloutCollector::score(std::vector<ScoredCompletion>& completions,
                             const GenerationRequest& request, rewards::Deadline deadline) {
  if (completions.empty()) return true;
  const profiling::Range range("reward");
  const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::reward);
  const ScoredViews views(completions, request, 0);
  for (const auto& reward : rewards_.functions) {
    reward->set_deadline(deadline);
    reward->begin(views.all());
  }
  for (const auto& reward : rewards_.functions) {
    if (request.stop_requested && request.stop_requested()) return false;
    const auto scores = reward->score(views.all());
    for (std::size_t i = 0; i < completions.size(); ++i)
      completions[i].rewards.push_back(scores[i]);
  }
  return true;
}

void RolloutCollector::add_old_log_probs(std::vector<ScoredCompletion>& completions,
                                         const std::vector<Prompt>& prompts) {
  const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::look_back);
  set_log_probs(
      completions, prompts,
      {.list = &ScoredCompletion::old_log_probs,
       .at_once = policy_.per_device,
       .most_tokens = policy_.micro_batch_tokens,
       .device = policy_.device,
       .score = [this](const model::DeviceBatch& batch) {
         auto& learner = policy_.learner;
         return learner.transformer().score(batch, policy_.temperature, learner.shards()).log_probs;
       }});
}

// Adds advantages and the metrics of rewards and lengths. Every rank computes the same values.
void RolloutCollector::add_advantages(Generation& generation, std::int64_t group) const {
  std::vector<std::int64_t> groups;
  for (std::size_t i = 0; i < generation.completions.size(); ++i)
    groups.push_back(static_cast<std::int64_t>(i) / group);
  grpo::Scores scores{
      .functions = rewards_.names, .weights = rewards_.weights, .rows = {}, .groups = groups};
  for (const auto& completion : generation.completions) scores.rows.push_back(completion.rewards);
  auto result = grpo::advantages(scores, options_.advantages);
  for (std::size_t i = 0; i < generation.completions.size(); ++i)
    generation.completions[i].advantage = result.advantages[i];
  generation.metrics = std::move(result.metrics);
  generation.metrics.merge(length_metrics(generation.completions));
}

std::string RolloutCollector::log(std::int64_t step, const Generation& generation,
                                  const std::vector<Prompt>& prompts) {
  log_.write(step, generation, prompts);
  return log_.table(generation, prompts);
}

}  // namespace mgpu::rl
