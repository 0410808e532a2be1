#include "runtime/rl/grpo_trainer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "rendezvous/base/seeds.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/train/consistency.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {
namespace {

// Mixes the numbers that a random stream depends on into one seed.
std::uint64_t mix_seed(std::initializer_list<std::uint64_t> parts) {
  return rendezvous::mix_seed(0x243f6a8885a308d3ULL, parts);
}

}  // namespace

// Generates what the step needs and no earlier step has generated.
void GrpoTrainer::generate_for(const grpo::GrpoStep& step) {
  const auto& prompts = prompts_->training();
  for (const auto& part : step.parts) {
    const auto number = part.generation;
    if (generations_.contains(number)) continue;
    auto generation =
        collector_->collect({.seed = mix_seed({config_.seed, static_cast<std::uint64_t>(number)}),
                             .step = progress_.step,
                             .prompts = prompts,
                             .selected = plan_->prompts(number),
                             .group = sizes_.group});
    generation.number = number;
    for (const auto& completion : generation.completions)
      progress_.tokens += static_cast<std::int64_t>(completion.tokens.size() +
                                                    prompts[completion.prompt].tokens.size());
    if (const auto table = collector_->log(progress_.step + 1, generation, prompts); !table.empty())
      reporter_->note(fmt::format("completions of step {}\n{}", progress_.step + 1, table));
    meter_.add(generation.metrics);
    generations_.emplace(number, std::move(generation));
  }
}

bool GrpoTrainer::train_step() {
  if (progress_.step >= total_steps_ || stop_requested_ || ends_early_) return false;
  const bool evaluates = !prompts_->evaluated().empty();
  if (config_.eval_on_start && progress_.step == 0 && evaluates) evaluate_now();
  const auto begin = std::chrono::steady_clock::now();
  const auto step = plan_->at(progress_.step);
  generate_for(step);
  const auto deal = dealer_->deal(step, generations_, prompts_->training());
  if (deal.skipped) meter_.add({{"skipped_micro_batches", static_cast<double>(*deal.skipped)}});
  learn(deal.micro_batches, progress_.step);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  meter_.add({{"step_time", seconds.count()}});
  const auto next = plan_->pending(progress_.step + 1);
  std::erase_if(generations_, [&](const auto& item) { return !next || item.first < *next; });
  ++progress_.step;
  if (const auto every = config_.consistency_check_steps; every > 0 && progress_.step % every == 0)
    train::check_consistency(learner_->shards(), *comm_, progress_.step);
  frozen_models_->move_reference(progress_.step);
  progress_.epoch = plan_->epochs_after(step.step);
  const bool epoch_ends = step.index + 1 == plan_->steps_in_epoch();
  const bool last = progress_.step == total_steps_;
  if (log_due() || last) log_interval();
  if (evaluates && due(config_.eval_steps, config_.eval_strategy, epoch_ends)) evaluate_now();
  if (due(config_.save_steps, config_.save_strategy, epoch_ends) || save_requested_) save();
  if (ends_early_) end_reason_ = train::EndReason::early;
  if (stop_requested_) end_reason_ = train::EndReason::stopped;
  return !last && !stop_requested_ && !ends_early_;
}

void GrpoTrainer::learn(const std::vector<MicroBatch>& micro_batches, std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const auto loss = control_.settings();
  const double rate = rates_->at(step);
  auto metrics = grpo::no_metrics(device_);
  const auto run_micro_batch = [&](std::size_t number, train::StepRecord&) {
    const auto& one = micro_batches[number];
    if (one.skipped) return learner_->shards().skip_micro_batch();
    PolicyLoss::Threshold threshold;
    if (loss.top_entropy_quantile < 1)
      threshold = [&](const at::Tensor& entropies) {
        return this->threshold(entropies, sizes_.per_device * max_tokens_,
                               loss.top_entropy_quantile);
      };
    PolicyLoss objective(one.entries, loss, one.denominators, threshold, device_);
    const auto dropout_seed = mix_seed({config_.seed, static_cast<std::uint64_t>(step),
                                        static_cast<std::uint64_t>(comm_->rank()), one.number});
    learner_->transformer().train(
        train::to_device(batch_of(one.entries, prompts_->training()), device_), objective,
        policy_->temperature, dropout_seed, learner_->shards());
    metrics.add(objective.loss().metrics);
  };
  auto record = learner_->step(micro_batches.size(), run_micro_batch, rate,
                               requests_ ? requests_() : train::Requests{});
  consume_record(record, metrics, micro_batches, loss, rate);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  meter_.add({{"update_time", seconds.count()}});
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
  const auto group = train::GrpoValues(config_).whole("num_generations_eval");
  const auto evaluation = collector_->collect({.seed = mix_seed({config_.seed, ~0ULL}),
                                               .step = progress_.step,
                                               .prompts = prompts_->evaluation(),
                                               .selected = prompts_->evaluated(),
                                               .group = group.value_or(sizes_.group),
                                               .for_training = false});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::map<std::string, double> metrics{{"eval_runtime", seconds.count()}};
  for (const auto& [name, value] : evaluation.metrics) metrics["eval_" + name] = value;
  reporter_->evaluation(progress_.step, progress_.epoch, metrics);
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
  const bool saves =
      config_.save_strategy != train::When::no || end_reason_ == train::EndReason::stopped;
  if (last_saved_ != progress_.step && saves && progress_.step > 0) save();
  save_last();
  collector_->finish();
  reporter_->summary(meter_.whole_run());
  comm_->close();
}

}  // namespace mgpu::rl
