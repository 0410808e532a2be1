#include "runtime/rl/grpo_trainer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "runtime/grpo/advantages.hpp"
#include "runtime/train/consistency.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {
namespace {

// Whether a completion contributes a gradient when the loss has only the advantage term.
bool has_advantage(const BatchEntry& entry) {
  return entry.in_loss && entry.completion->advantage != 0;
}

// Mixes the numbers that a random stream depends on into one seed.
std::uint64_t mix_seed(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t x = 0x243f6a8885a308d3ULL;
  for (const auto part : parts) {
    x = (x ^ part) * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 29;
  }
  return x;
}

}  // namespace

const Generation& GrpoTrainer::generation(std::int64_t number) {
  const auto found = generations_.find(number);
  if (found != generations_.end()) return found->second;
  auto generated = generate(number);
  log_->write(progress_.step + 1, generated, prompts_.all);
  if (const auto table = log_->table(generated, prompts_.all); !table.empty())
    reporter_->note("completions of step " + std::to_string(progress_.step + 1) + "\n" + table);
  add_metrics(generated.metrics);
  return generations_.emplace(number, std::move(generated)).first->second;
}

// All ranks generate and score completions of the selected prompts; the result is in prompt order.
std::vector<ScoredCompletion> GrpoTrainer::complete(std::uint64_t seed,
                                                    const std::vector<std::uint32_t>& selected,
                                                    std::int64_t group,
                                                    const std::vector<Prompt>& prompts,
                                                    bool for_training) {
  std::vector<std::int64_t> lengths;
  for (const auto index : selected)
    lengths.push_back(static_cast<std::int64_t>(prompts[index].tokens.size()));
  const auto spread = grpo::spread_prompts(lengths, comm_->world());
  GenerationRequest request{.seed = seed,
                            .prompts = {},
                            .numbers = spread[static_cast<std::size_t>(comm_->rank())],
                            .group = group};
  for (const auto number : request.numbers)
    request.prompts.push_back(selected[static_cast<std::size_t>(number)]);
  generator_->sync_weights(progress_.step);
  std::vector<ScoredCompletion> own;
  {
    // Ranks run different numbers of forward passes, so weights are gathered beforehand: no rank
    // may have to wait for another's shard.
    std::optional<rollout::GatheredWeights> gathered;
    if (!server_) gathered.emplace(source_->config, learner_->shards());
    own = collector_->collect(request, prompts);
    if (for_training && (!sizes_.on_policy() || control_.settings().correct_sampler)) {
      if (server_) gathered.emplace(source_->config, learner_->shards());
      add_log_probs(own, false);
    }
  }
  score_with_models(own, prompts, ModelPlacement::sharded, for_training);
  auto completions = in_prompt_order(gather_completions(own, *comm_, device_), spread, group);
  score_with_models(completions, prompts, ModelPlacement::resident, for_training);
  return completions;
}

Generation GrpoTrainer::generate(std::int64_t number) {
  const auto selected = plan_->prompts(number);
  Generation generation{.number = number};
  generation.completions =
      complete(mix_seed({config_.seed, static_cast<std::uint64_t>(number)}),
               {selected.begin(), selected.end()}, sizes_.group, prompts_.all, true);
  count_unscored(generation.completions);
  compute_advantages(generation, sizes_.group);
  for (const auto& completion : generation.completions)
    progress_.tokens += static_cast<std::int64_t>(completion.tokens.size() +
                                                  prompts_.all[completion.prompt].tokens.size());
  return generation;
}

// Computes advantages and reward metrics. Every rank computes the same values.
void GrpoTrainer::compute_advantages(Generation& generation, std::int64_t group) const {
  std::vector<std::int64_t> groups;
  for (std::size_t i = 0; i < generation.completions.size(); ++i)
    groups.push_back(static_cast<std::int64_t>(i) / group);
  grpo::Scores scores{.functions = reward_names_, .weights = reward_weights_, .groups = groups};
  for (const auto& completion : generation.completions) scores.rows.push_back(completion.rewards);
  auto result = grpo::advantages(scores, grpo::advantage_options(config_));
  for (std::size_t i = 0; i < generation.completions.size(); ++i)
    generation.completions[i].advantage = result.advantages[i];
  generation.metrics = std::move(result.metrics);
  generation.metrics.merge(length_metrics(generation.completions));
}

BatchEntry GrpoTrainer::entry(const ScoredCompletion& completion, bool in_loss) const {
  return {&completion, in_loss && (completion.terminated || !masks_truncated_)};
}

// This rank's micro-batches of a step.
std::vector<GrpoTrainer::MicroBatch> GrpoTrainer::micro_batches_of(const grpo::GrpoStep& step) {
  struct Part {
    std::vector<const ScoredCompletion*> completions;
    std::vector<std::vector<std::vector<grpo::Assignment>>> assignments;
    std::int64_t generation_tokens = 0;
  };
  std::vector<Part> parts;
  grpo::Denominators all{.completions = step.completions(),
                         .micro_batches = 0,
                         .generation_completions = sizes_.generation,
                         .max_completion_length = max_tokens_};
  const auto tokens_of = [&](const ScoredCompletion& completion) {
    return entry(completion, true).in_loss ? static_cast<std::int64_t>(completion.tokens.size())
                                           : 0;
  };
  for (const auto& step_part : step.parts) {
    const auto& source = generation(step_part.generation);
    const auto order = plan_->order(step_part.generation);
    Part part;
    std::vector<double> costs;
    for (auto i = step_part.first; i < step_part.first + step_part.count; ++i) {
      const auto& completion = source.completions[order[static_cast<std::size_t>(i)]];
      part.completions.push_back(&completion);
      costs.push_back(static_cast<double>(completion.tokens.size() +
                                          prompts_.all[completion.prompt].tokens.size()));
      all.tokens += tokens_of(completion);
    }
    for (const auto& completion : source.completions)
      part.generation_tokens += tokens_of(completion);
    part.assignments = grpo::assign_to_ranks(costs, comm_->world(), sizes_.per_device);
    all.micro_batches +=
        static_cast<std::int64_t>(part.assignments.front().size()) * comm_->world();
    parts.push_back(std::move(part));
  }
  std::vector<MicroBatch> micro_batches;
  const auto rank = static_cast<std::size_t>(comm_->rank());
  for (const auto& part : parts)
    for (std::size_t number = 0; number < part.assignments[rank].size(); ++number) {
      MicroBatch micro_batch{.number = micro_batches.size(), .denominators = all};
      micro_batch.denominators.generation_tokens = part.generation_tokens;
      for (std::size_t other = 0; other < part.assignments.size(); ++other) {
        std::vector<BatchEntry> entries;
        for (const auto& assignment : part.assignments[other][number])
          entries.push_back(entry(*part.completions[assignment.completion], assignment.in_loss));
        micro_batch.ranks_without_advantage +=
            std::none_of(entries.begin(), entries.end(), has_advantage) ? 1 : 0;
        if (other == rank) micro_batch.entries = std::move(entries);
      }
      micro_batches.push_back(std::move(micro_batch));
    }
  return micro_batches;
}

bool GrpoTrainer::train_step() {
  if (progress_.step >= total_steps_ || stop_requested_ || ends_early_) return false;
  if (config_.eval_on_start && progress_.step == 0 && evaluated_ != nullptr) evaluate_now();
  const auto begin = std::chrono::steady_clock::now();
  const auto step = plan_->at(progress_.step);
  auto micro_batches = micro_batches_of(step);
  skip_without_advantage(micro_batches);
  learn(micro_batches, progress_.step);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  add_metrics({{"step_time", seconds.count()}});
  const auto next = plan_->pending(progress_.step + 1);
  std::erase_if(generations_, [&](const auto& item) { return !next || item.first < *next; });
  ++progress_.step;
  if (const auto every = config_.consistency_check_steps; every > 0 && progress_.step % every == 0)
    train::check_consistency(learner_->shards(), *comm_, progress_.step);
  if (reference_ && sync_every_ > 0 && progress_.step % sync_every_ == 0)
    reference_->move(learner_->shards(), sync_share_);
  const auto in_epoch = static_cast<double>(plan_->steps_in_epoch());
  progress_.epoch =
      static_cast<double>(step.epoch) + static_cast<double>(step.index + 1) / in_epoch;
  interval_.epoch = whole_run_.epoch = progress_.epoch;
  const bool epoch_ends = step.index + 1 == plan_->steps_in_epoch();
  const bool last = progress_.step == total_steps_;
  if (log_due() || last) log_interval();
  if (evaluated_ != nullptr && due(config_.eval_steps, config_.eval_strategy, epoch_ends))
    evaluate_now();
  if (due(config_.save_steps, config_.save_strategy, epoch_ends) || save_requested_) save();
  if (ends_early_) end_reason_ = train::EndReason::early;
  if (stop_requested_) end_reason_ = train::EndReason::stopped;
  return !last && !stop_requested_ && !ends_early_;
}

// Removes the micro-batches in which no rank has a completion with an advantage, but keeps at least
// one.
void GrpoTrainer::skip_without_advantage(std::vector<MicroBatch>& micro_batches) {
  if (!skips_zero_advantage_) return;
  const auto no_rank_has_advantage = [&](const MicroBatch& micro_batch) {
    return micro_batch.ranks_without_advantage == comm_->world();
  };
  const bool together = learner_->options().shards.zero_stage == 3;
  std::int64_t skipped = 0;
  for (const auto& micro_batch : micro_batches)
    if (!together || no_rank_has_advantage(micro_batch))
      skipped += micro_batch.ranks_without_advantage;
  add_metrics({{"skipped_micro_batches", static_cast<double>(skipped)}});
  // The optimizer still takes its step, if necessary with a gradient of 0.
  if (std::all_of(micro_batches.begin(), micro_batches.end(), no_rank_has_advantage))
    micro_batches.resize(1);
  else
    std::erase_if(micro_batches, no_rank_has_advantage);
}

// Whether this rank skips its part of a micro-batch. With ZeRO stage 3 the other ranks need it to
// gather weights, so a part is skipped only if all ranks skip theirs.
bool GrpoTrainer::is_skipped(const MicroBatch& micro_batch) const {
  if (!skips_zero_advantage_ || micro_batch.ranks_without_advantage == 0) return false;
  if (learner_->options().shards.zero_stage == 3)
    return micro_batch.ranks_without_advantage == comm_->world();
  return std::none_of(micro_batch.entries.begin(), micro_batch.entries.end(), has_advantage);
}

void GrpoTrainer::learn(const std::vector<MicroBatch>& micro_batches, std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const auto loss = control_.settings();
  const double rate = rates_->at(step);
  auto metrics = grpo::no_metrics(device_);
  const auto run_micro_batch = [&](std::size_t number, train::StepRecord&) {
    const auto& one = micro_batches[number];
    if (is_skipped(one)) return learner_->shards().skip_micro_batch();
    PolicyLoss::Threshold threshold;
    if (loss.top_entropy_quantile < 1)
      threshold = [&](const at::Tensor& entropies) {
        return this->threshold(entropies, sizes_.per_device * max_tokens_,
                               loss.top_entropy_quantile);
      };
    PolicyLoss objective(one.entries, loss, one.denominators, threshold, device_);
    const auto dropout_seed = mix_seed({config_.seed, static_cast<std::uint64_t>(step),
                                        static_cast<std::uint64_t>(comm_->rank()), one.number});
    learner_->transformer().train(train::to_device(batch_of(one.entries, prompts_.all), device_),
                                  objective, temperature_, dropout_seed, learner_->shards());
    metrics.add(objective.loss().metrics);
  };
  auto record = learner_->step(micro_batches.size(), run_micro_batch, rate,
                               requests_ ? requests_() : train::Requests{});
  consume_record(record, metrics, micro_batches, loss, rate);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  add_metrics({{"update_time", seconds.count()}});
}

// The lowest entropy, over all ranks, of the tokens that are trained on. Ranks have different
// numbers of tokens, at most `max_tokens`.
at::Tensor GrpoTrainer::threshold(const at::Tensor& entropies, std::int64_t max_tokens,
                                  double quantile) {
  auto own = at::full({max_tokens}, std::nan(""), entropies.options());
  own.narrow(0, 0, entropies.numel()).copy_(entropies);
  const auto all = at::empty({max_tokens * comm_->world()}, own.options());
  comm_->all_gather(all, own, "entropies").wait();
  return grpo::entropy_threshold(all, quantile);
}

void GrpoTrainer::evaluate_now() {
  const auto begin = std::chrono::steady_clock::now();
  Generation evaluation{.number = -1};
  evaluation.completions =
      complete(mix_seed({config_.seed, ~0ULL}), eval_order_, eval_group_, *evaluated_, false);
  compute_advantages(evaluation, eval_group_);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::map<std::string, double> metrics{{"eval_runtime", seconds.count()}};
  for (const auto& [name, value] : evaluation.metrics) metrics["eval_" + name] = value;
  reporter_->evaluation(progress_.step, progress_.epoch, metrics);
  last_evaluated_ = progress_.step;
  const auto decision = evaluate_best_model(metrics);
  if (decision.keep) {
    save();
    best_checkpoint_ = last_checkpoint_;
  }
  ends_early_ = decision.stop;
}

void GrpoTrainer::save() {
  const auto control = control_.state();
  progress_.task_state = {{"beta", control.beta},
                          {"entropy_coef", control.entropy.coefficient},
                          {"last_entropy", nullptr},
                          {"generations", nlohmann::json::array()}};
  if (control.entropy.last) progress_.task_state["last_entropy"] = *control.entropy.last;
  for (const auto& [number, generation] : generations_)
    progress_.task_state["generations"].push_back(to_json(generation));
  save_now();
  progress_.task_state = {};
}

void GrpoTrainer::finish() {
  log_interval();
  whole_run_.loss = loss_steps_ > 0 ? loss_sum_ / static_cast<double>(loss_steps_) : 0;
  const bool saves =
      config_.save_strategy != train::When::no || end_reason_ == train::EndReason::stopped;
  if (last_saved_ != progress_.step && saves && progress_.step > 0) save();
  save_last();
  generator_->finish();
  reporter_->summary(whole_run_);
  comm_->close();
}

}  // namespace mgpu::rl
