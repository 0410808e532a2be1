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

// Whether anything can be learnt from a completion where only advantages teach.
bool teaches(const Member& member) {
  return member.counts && member.sample->advantage != 0;
}

// What chance depends on, made one number.
std::uint64_t mixed(std::initializer_list<std::uint64_t> parts) {
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
  auto made = generate(number);
  log_->write(progress_.step + 1, made, questions_.all);
  if (const auto table = log_->table(made, questions_.all); !table.empty())
    reporter_->note("completions of step " + std::to_string(progress_.step + 1) + "\n" + table);
  measure(made.metrics);
  return generations_.emplace(number, std::move(made)).first->second;
}

// Completions of questions by all ranks, judged, in the order of the questions.
std::vector<Sample> GrpoTrainer::complete(std::uint64_t seed,
                                          const std::vector<std::uint32_t>& asked,
                                          std::int64_t group,
                                          const std::vector<Question>& questions, bool teaches) {
  std::vector<std::int64_t> lengths;
  for (const auto question : asked)
    lengths.push_back(static_cast<std::int64_t>(questions[question].tokens.size()));
  const auto spread = grpo::spread_prompts(lengths, comm_->world());
  Round round{.seed = seed,
              .questions = {},
              .numbers = spread[static_cast<std::size_t>(comm_->rank())],
              .group = group};
  for (const auto number : round.numbers)
    round.questions.push_back(asked[static_cast<std::size_t>(number)]);
  generator_->renew(progress_.step);
  std::vector<Sample> own;
  {
    // Ranks read different numbers of batches, so no rank may wait for another's weights.
    std::optional<rollout::WholeWeights> whole;
    if (!server_) whole.emplace(source_->config, learner_->shards());
    own = actor_->complete(round, questions);
    if (teaches && (!sizes_.on_policy() || loss_.correct_sampler)) {
      if (server_) whole.emplace(source_->config, learner_->shards());
      look_back(own, false);
    }
  }
  consult(own, questions, Consulted::spread, teaches);
  auto samples = in_order(share(own, *comm_, device_), spread, group);
  consult(samples, questions, Consulted::held, teaches);
  return samples;
}

Generation GrpoTrainer::generate(std::int64_t number) {
  const auto asked = plan_->prompts(number);
  Generation generation{.number = number};
  generation.samples = complete(mixed({config_.seed, static_cast<std::uint64_t>(number)}),
                                {asked.begin(), asked.end()}, sizes_.group, questions_.all, true);
  count_unjudged(generation.samples);
  compare(generation, sizes_.group);
  for (const auto& sample : generation.samples)
    progress_.tokens += static_cast<std::int64_t>(sample.tokens.size() +
                                                  questions_.all[sample.question].tokens.size());
  return generation;
}

// Advantages and what there is to say about the rewards. Every rank computes the same.
void GrpoTrainer::compare(Generation& generation, std::int64_t group) const {
  std::vector<std::int64_t> groups;
  for (std::size_t i = 0; i < generation.samples.size(); ++i)
    groups.push_back(static_cast<std::int64_t>(i) / group);
  grpo::Scores scores{.functions = reward_names_, .weights = reward_weights_, .groups = groups};
  for (const auto& sample : generation.samples) scores.rows.push_back(sample.rewards);
  auto judged = grpo::advantages(scores, grpo::advantage_options(config_));
  for (std::size_t i = 0; i < generation.samples.size(); ++i)
    generation.samples[i].advantage = judged.advantages[i];
  generation.metrics = std::move(judged.metrics);
  generation.metrics.merge(length_metrics(generation.samples));
}

Member GrpoTrainer::member(const Sample& sample, bool counts) const {
  return {&sample, counts && (sample.terminated || !masks_truncated_)};
}

// This rank's micro-batches of a step.
std::vector<GrpoTrainer::MicroBatch> GrpoTrainer::deal(const grpo::GrpoStep& step) {
  struct Part {
    std::vector<const Sample*> samples;
    std::vector<std::vector<std::vector<grpo::Place>>> places;
    std::int64_t generation_tokens = 0;
  };
  std::vector<Part> parts;
  grpo::Denominators all{.completions = step.completions(),
                         .micro_batches = 0,
                         .generation_completions = sizes_.generation,
                         .max_completion_length = most_tokens_};
  const auto tokens_of = [&](const Sample& sample) {
    return member(sample, true).counts ? static_cast<std::int64_t>(sample.tokens.size()) : 0;
  };
  for (const auto& wanted : step.parts) {
    const auto& made = generation(wanted.generation);
    const auto order = plan_->order(wanted.generation);
    Part part;
    std::vector<double> costs;
    for (auto i = wanted.first; i < wanted.first + wanted.count; ++i) {
      const auto& sample = made.samples[order[static_cast<std::size_t>(i)]];
      part.samples.push_back(&sample);
      costs.push_back(static_cast<double>(sample.tokens.size() +
                                          questions_.all[sample.question].tokens.size()));
      all.tokens += tokens_of(sample);
    }
    for (const auto& sample : made.samples) part.generation_tokens += tokens_of(sample);
    part.places = grpo::deal(costs, comm_->world(), sizes_.per_device);
    all.micro_batches += static_cast<std::int64_t>(part.places.front().size()) * comm_->world();
    parts.push_back(std::move(part));
  }
  std::vector<MicroBatch> micro_batches;
  const auto rank = static_cast<std::size_t>(comm_->rank());
  for (const auto& part : parts)
    for (std::size_t number = 0; number < part.places[rank].size(); ++number) {
      MicroBatch micro_batch{.number = micro_batches.size(), .denominators = all};
      micro_batch.denominators.generation_tokens = part.generation_tokens;
      for (std::size_t other = 0; other < part.places.size(); ++other) {
        std::vector<Member> members;
        for (const auto& place : part.places[other][number])
          members.push_back(member(*part.samples[place.completion], place.counts));
        micro_batch.idle_ranks += std::none_of(members.begin(), members.end(), teaches) ? 1 : 0;
        if (other == rank) micro_batch.members = std::move(members);
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
  auto micro_batches = deal(step);
  leave_out_idle(micro_batches);
  learn(micro_batches, progress_.step);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  measure({{"step_time", seconds.count()}});
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

// Leaves out the micro-batches from which no rank learns anything, if there are others.
void GrpoTrainer::leave_out_idle(std::vector<MicroBatch>& micro_batches) {
  if (!skips_idle_) return;
  const auto all_idle = [&](const MicroBatch& micro_batch) {
    return micro_batch.idle_ranks == comm_->world();
  };
  const bool together = learner_->options().shards.zero_stage == 3;
  std::int64_t skipped = 0;
  for (const auto& micro_batch : micro_batches)
    if (!together || all_idle(micro_batch)) skipped += micro_batch.idle_ranks;
  measure({{"skipped_micro_batches", static_cast<double>(skipped)}});
  // The optimizer takes its step, with a gradient of 0 if need be.
  if (std::all_of(micro_batches.begin(), micro_batches.end(), all_idle))
    micro_batches.resize(1);
  else
    std::erase_if(micro_batches, all_idle);
}

// Whether this rank's part of a micro-batch is left out. With stage 3 the others need it to gather
// weights, so that only what is left out by all of them is.
bool GrpoTrainer::idle(const MicroBatch& micro_batch) const {
  if (!skips_idle_ || micro_batch.idle_ranks == 0) return false;
  if (learner_->options().shards.zero_stage == 3) return micro_batch.idle_ranks == comm_->world();
  return std::none_of(micro_batch.members.begin(), micro_batch.members.end(), teaches);
}

void GrpoTrainer::learn(const std::vector<MicroBatch>& micro_batches, std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  loss_.beta = kl_.beta();
  loss_.entropy_coef = entropy_.applied();
  const double rate = rates_->at(step);
  auto metrics = grpo::no_metrics(device_);
  const auto run_micro_batch = [&](std::size_t place, train::StepRecord&) {
    const auto& one = micro_batches[place];
    if (idle(one)) return learner_->shards().skip_micro_batch();
    PolicyLoss::Threshold threshold;
    if (loss_.top_entropy_quantile < 1)
      threshold = [&](const at::Tensor& entropies) {
        return this->threshold(entropies, sizes_.per_device * most_tokens_);
      };
    PolicyLoss objective(one.members, loss_, one.denominators, threshold, device_);
    const auto dropout_seed = mixed({config_.seed, static_cast<std::uint64_t>(step),
                                     static_cast<std::uint64_t>(comm_->rank()), one.number});
    learner_->transformer().train(train::to_device(lay_out(one.members, questions_.all), device_),
                                  objective, temperature_, dropout_seed, learner_->shards());
    metrics.add(objective.loss().metrics);
  };
  auto record = learner_->step(micro_batches.size(), run_micro_batch, rate,
                               requests_ ? requests_() : train::Requests{});
  consume_record(record, metrics, micro_batches, rate);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  measure({{"update_time", seconds.count()}});
}

// The least entropy of those tokens that learn, of all ranks'. Ranks have different numbers of
// tokens, at most so many.
at::Tensor GrpoTrainer::threshold(const at::Tensor& entropies, std::int64_t most) {
  auto own = at::full({most}, std::nan(""), entropies.options());
  own.narrow(0, 0, entropies.numel()).copy_(entropies);
  const auto all = at::empty({most * comm_->world()}, own.options());
  comm_->all_gather(all, own, "entropies").wait();
  return grpo::entropy_threshold(all, loss_.top_entropy_quantile);
}

void GrpoTrainer::evaluate_now() {
  const auto begin = std::chrono::steady_clock::now();
  Generation made{.number = -1};
  made.samples =
      complete(mixed({config_.seed, ~0ULL}), eval_order_, eval_group_, *evaluated_, false);
  compare(made, eval_group_);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::map<std::string, double> metrics{{"eval_runtime", seconds.count()}};
  for (const auto& [name, value] : made.metrics) metrics["eval_" + name] = value;
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
  const auto entropy = entropy_.state();
  progress_.task_state = {{"beta", kl_.beta()},
                          {"entropy_coef", entropy.coefficient},
                          {"last_entropy", nullptr},
                          {"generations", nlohmann::json::array()}};
  if (entropy.last) progress_.task_state["last_entropy"] = *entropy.last;
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
