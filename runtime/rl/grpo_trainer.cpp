#include "runtime/rl/grpo_trainer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/seeds.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/data/share.hpp"
#include "runtime/train/consistency.hpp"

namespace mgpu::rl {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Mixes the numbers that a random stream depends on into one seed.
std::uint64_t mix_seed(std::initializer_list<std::uint64_t> parts) {
  return rendezvous::mix_seed(0x243f6a8885a308d3ULL, parts);
}

// The arithmetic of this rank's part of an update: completions in the loss, and their prompts,
// which neighbours in a micro-batch share. The ranks have about equal parts.
double own_flops(const std::vector<MicroBatch>& micro_batches, const std::vector<Prompt>& prompts,
                 const model::TrainingFlops& flops) {
  double tokens = 0, pairs = 0;
  for (const auto& micro_batch : micro_batches) {
    if (micro_batch.skipped) continue;
    const ScoredCompletion* previous = nullptr;
    for (const auto& [completion, in_loss] : micro_batch.entries) {
      if (!in_loss) continue;
      const auto prompt = static_cast<double>(prompts[completion->prompt].tokens.size());
      const auto length = prompt + static_cast<double>(completion->tokens.size());
      const bool shared = previous != nullptr && previous->prompt == completion->prompt;
      tokens += length - (shared ? prompt : 0);
      pairs += data::attention_pairs(length) - (shared ? data::attention_pairs(prompt) : 0);
      previous = completion;
    }
  }
  return flops.of(tokens, pairs);
}

}  // namespace

bool GrpoTrainer::train_step() {
  if (progress_.step >= total_steps_ || stop_requested_ || ends_early_) return false;
  const bool evaluates = !prompts_->evaluated().empty();
  if (config_.eval_on_start && progress_.step == 0 && evaluates) evaluate_now();
  step_begins();
  const auto begin = Clock::now();
  const auto step = plan_->at(progress_.step);
  if (stop_requested_ || !collect(step)) {
    end_reason_ = train::EndReason::stopped;
    return false;
  }
  const auto deal = dealer_->deal(step, generations_, prompts_->training());
  if (deal.skipped) meter_.add({{"skipped_micro_batches", static_cast<double>(*deal.skipped)}});
  update(deal);
  meter_.add({{"step_time", seconds_since(begin)}});
  meter_.add(seconds_.take());
  progress_.epoch = plan_->epochs_after(progress_.step++);
  forget_used_generations();
  if (const auto every = config_.consistency_check_steps; every > 0 && progress_.step % every == 0)
    train::check_consistency(learner_->shards(), *comm_, progress_.step);
  frozen_models_->move_reference(progress_.step);
  step_ends();
  const bool epoch_ends = step.index + 1 == plan_->steps_in_epoch();
  const bool last = progress_.step == total_steps_;
  if (log_due() || last) log_interval();
  const bool tests_last = last && recommendation_->test_beams() > 0;
  if (evaluates && (due(config_.eval_steps, config_.eval_strategy, epoch_ends) || tests_last))
    evaluate_now();
  if (due(config_.save_steps, config_.save_strategy, epoch_ends) || save_requested_) save();
  if (ends_early_) end_reason_ = train::EndReason::early;
  if (stop_requested_) end_reason_ = train::EndReason::stopped;
  return !last && !stop_requested_ && !ends_early_;
}

// What this rank was asked to do. Generation calls it often.
const train::Requests& GrpoTrainer::take_requests() {
  const auto more = new_requests();
  own_requests_.save = own_requests_.save || more.save;
  own_requests_.stop = own_requests_.stop || more.stop;
  return own_requests_;
}

// Collects the generations that the step needs and no earlier step has collected. Returns false if
// a rank was asked to stop meanwhile: the run is then as it was before this step.
bool GrpoTrainer::collect(const grpo::GrpoStep& step) {
  const auto& prompts = prompts_->training();
  Dealer::Generations collected;
  for (const auto& part : step.parts) {
    const auto number = part.generation;
    if (generations_.contains(number) || collected.contains(number)) continue;
    const train::StepReports::Phase phase(step_reports_, "rollout");
    auto generation =
        collector_->collect({.seed = mix_seed({config_.seed, static_cast<std::uint64_t>(number)}),
                             .step = progress_.step,
                             .prompts = prompts,
                             .selected = plan_->prompts(number),
                             .group = sizes_.group,
                             .decoding = {.beams = recommendation_->trains_on_beams()},
                             .stop_requested = [this] { return take_requests().stop; }});
    if (!generation) {
      stop_requested_ = true;
      return false;
    }
    generation->number = number;
    collected.emplace(number, std::move(*generation));
  }
  for (auto& [number, generation] : collected) {
    for (const auto& completion : generation.completions)
      progress_.tokens += static_cast<std::int64_t>(completion.tokens.size() +
                                                    prompts[completion.prompt].tokens.size());
    if (const auto table = collector_->log(progress_.step + 1, generation, prompts); !table.empty())
      reporter_->note(fmt::format("completions of step {}\n{}", progress_.step + 1, table));
    meter_.add(generation.metrics);
    generations_.emplace(number, std::move(generation));
  }
  return true;
}

void GrpoTrainer::update(const Deal& deal) {
  const StepSeconds::Scope scope(seconds_, StepSeconds::Phase::update);
  const auto loss = control_.settings();
  const double rate = rates_->at(progress_.step);
  const auto dropout_seed = [this](std::size_t number) {
    return mix_seed({config_.seed, static_cast<std::uint64_t>(progress_.step),
                     static_cast<std::uint64_t>(comm_->rank()), number});
  };
  std::function<void(const train::StepOutcome&)> divide;
  if (train::may_divide_micro_batches(config_))
    divide = [this](const train::StepOutcome& of_skipped_step) {
      divide_micro_batches(of_skipped_step, progress_.step + 1);
    };
  auto [outcome, metrics] = update_->step({.step = progress_.step,
                                           .deal = deal,
                                           .prompts = prompts_->training(),
                                           .loss = loss,
                                           .learning_rate = rate,
                                           .requests = take_requests(),
                                           .dropout_seed = dropout_seed,
                                           .divide_micro_batches = divide});
  own_requests_ = {};
  record_requests(outcome);
  control_.adapt(metrics);
  const auto& window = deal.micro_batches.front().denominators;
  meter_.add_step(
      {.step = progress_.step + 1,
       .total_steps = total_steps_,
       .epoch = plan_->epochs_after(progress_.step),
       .learning_rate = rate,
       .grad_norm = outcome.grad_norm,
       .comm_seconds = outcome.comm_seconds / contract_.world_size,
       .flops = own_flops(deal.micro_batches, prompts_->training(), flops_) * contract_.world_size,
       .completions = window.completions,
       .tokens = window.tokens,
       .skipped = outcome.skipped,
       .loss_scale = outcome.loss_scale ? outcome.loss_scale->next : 0,
       .rank_memory = outcome.rank_memory});
  if (outcome.skipped) metrics.erase("loss");  // it has none
  check_gradient(progress_.step + 1, outcome);
  meter_.add(metrics);
}

// Later steps use the generations from the pending one on.
void GrpoTrainer::forget_used_generations() {
  const auto next = plan_->pending(progress_.step);
  std::erase_if(generations_, [&](const auto& item) { return !next || item.first < *next; });
}

void GrpoTrainer::log_interval() {
  const auto report = meter_.take_interval(progress_.tokens);
  if (!report) return;
  report_interval(report->interval);
  for (const auto& warning : report->warnings) reporter_->note(warning);
  for (const auto& warning : frozen_models_->take_warnings()) reporter_->note(warning);
}

void GrpoTrainer::evaluate_now() {
  const train::StepReports::Phase phase(step_reports_, "evaluation");
  const auto begin = Clock::now();
  const auto tests = recommendation_->test_beams();
  const auto group = tests > 0 ? tests : train::GrpoValues(config_).whole("num_generations_eval");
  const auto evaluation =
      collector_->collect({.seed = mix_seed({config_.seed, ~0ULL}),
                           .step = progress_.step,
                           .prompts = prompts_->evaluation(),
                           .selected = prompts_->evaluated(),
                           .group = group.value_or(sizes_.group),
                           .for_training = false,
                           .decoding = {.beams = tests > 0 || recommendation_->trains_on_beams(),
                                        .with_temperature = tests == 0},
                           .stop_requested = [this] { return take_requests().stop; }});
  seconds_.take();  // those of an evaluation belong to no step
  if (!evaluation) {
    stop_requested_ = true;
    return;
  }
  std::map<std::string, double> metrics{{"eval_runtime", seconds_since(begin)}};
  item_evaluation_.clear();
  for (const auto& [name, value] : evaluation->metrics) {
    metrics["eval_" + name] = value;
    if (name.find('@') != name.npos || name.ends_with("_diversity"))
      item_evaluation_["eval_" + name] = value;
  }
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
    progress_.task_state["generations"].push_back(
        {{"number", number}, {"metrics", generation.metrics}});
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
  auto run = meter_.whole_run();
  run.extra.insert(item_evaluation_.begin(), item_evaluation_.end());
  report_end(run);
  comm_->close();
}

}  // namespace mgpu::rl
