#include "runtime/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "runtime/data/report_lines.hpp"
#include "runtime/train/consistency.hpp"

namespace mgpu::train {

std::vector<std::string> Trainer::data_lines() const {
  std::vector<std::string> all;
  if (stream_) {
    all = stream_->notes();
    all.push_back(
        fmt::format("streaming: rows are tokenized in windows of {} rows while the rows "
                    "before them are trained on",
                    stream_->window_rows()));
  }
  for (const auto* prepared : {&train_data_, &eval_data_}) {
    if (!*prepared) continue;
    for (const auto& report : (*prepared)->reports)
      for (auto& line : data::lines_of(report, config_.max_length)) all.push_back(std::move(line));
  }
  return all;
}

void Trainer::start_loader() {
  data::LoaderOptions options;
  options.rank = contract_.rank;
  options.world = contract_.world_size;
  options.max_items = batch_.per_device;
  options.min_micro_batches = batch_.accumulation;
  options.first_step = progress_.step;
  options.end_step = total_steps_;
  options.prefetch_steps = prefetched_steps(config_);
  options.threads = config_.dataloader_num_workers;
  options.weights = [pacer = pacer_.get()](std::int64_t step) { return pacer->weights(step); };
  if (stream_) {
    start_stream();
    loader_ = std::make_unique<data::Loader>(
        [stream = stream_.get()](std::int64_t step, const std::stop_token& stop) {
          return stream->at(step, stop);
        },
        options);
  } else {
    loader_ = std::make_unique<data::Loader>(train_data_->dataset, *plan_, options);
  }
  next_ = next_batches();
  training_over_ = !next_;
}

EpochStats Trainer::train_epoch() {
  if (training_over_ && step_finished_) return {};
  const auto begin = std::chrono::steady_clock::now();
  epoch_ = {};
  with_replacements([this] {
    train_to_the_end_of_the_epoch();
    consume_record();  // if training was stopped within the epoch
  });
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  const auto at_least_one = [](std::int64_t n) {
    return static_cast<double>(std::max<std::int64_t>(1, n));
  };
  return {.steps = epoch_.steps,
          .samples = epoch_.examples,
          .avg_loss = epoch_.loss_sum / at_least_one(epoch_.target_tokens),
          .epoch_time = time.count(),
          .avg_step_time = time.count() / at_least_one(epoch_.steps),
          .more = !training_over_};
}

void Trainer::train_to_the_end_of_the_epoch() {
  if (config_.eval_on_start && progress_.step == 0 && last_evaluated_ < 0 &&
      eval_dataset_ != nullptr)
    evaluate_now();
  if (!step_finished_) finish_step();
  const auto epoch = next_ ? next_->epoch : last_epoch_;
  while (next_ && next_->epoch == epoch && !training_over_) {
    take_step();
    finish_step();
  }
  if (!next_) training_over_ = true;
}

void Trainer::take_step() {
  auto batches = std::move(*next_);
  const double rate = rates_->at(batches.step);
  step_begins();
  auto requests = new_requests();
  requests.save = save_asked_ = requests.save || save_asked_;
  auto record = learner_->step(batches, rate, requests);
  save_asked_ = false;
  // All ranks have done the step before the one in flight.
  if (stream_) stream_->release(batches.step - 1);
  next_ = next_batches();
  // Of the previous step, while the device computes this one.
  if (consume_record()) record = learner_->step(batches, rate, requests);
  const double epoch_now = epoch_after(batches);
  const double flops = flops_.of(static_cast<double>(batches.tokens), batches.attention_pairs);
  progress_.step = batches.step + 1;
  last_epoch_ = batches.epoch;
  step_finished_ = false;
  in_flight_ = InFlight{std::move(record), std::move(batches), requests, rate, epoch_now, flops,
                        progress_.epoch};
  progress_.epoch = epoch_now;
  if (const auto every = config_.consistency_check_steps;
      every > 0 && progress_.step % every == 0) {
    consume_record();  // a step that did not fit into memory is repeated first
    check_consistency(learner_->shards(), *comm_, progress_.step);
  }
  step_ends();
}

void Trainer::finish_step() {
  if (stream_)
    for (const auto& line : stream_->take_lines()) reporter_->note(line);
  const bool epoch_ends = !next_ || next_->epoch != last_epoch_;
  const bool last = progress_.step == total_steps_;
  if (log_due() || last || epoch_ends) consume_record();
  if (log_due() || last) log_interval();
  if (eval_dataset_ != nullptr && last_evaluated_ != progress_.step &&
      due(config_.eval_steps, config_.eval_strategy, epoch_ends))
    evaluate_now();
  if (due(config_.save_steps, config_.save_strategy, epoch_ends) || save_requested_) save();
  if (stop_requested_) {
    end_reason_ = EndReason::stopped;
    training_over_ = true;
  }
  step_finished_ = true;
}

void Trainer::finish() {
  with_replacements([this] {
    if (!step_finished_) finish_step();
    consume_record();
    end_readiness();
  });
  log_interval();
  record_stream_place();
  save_last();
  report_end(whole_run_);
  loader_.reset();
  stream_.reset();
  comm_->close();
}

double Trainer::epoch_after(const data::StepBatches& batches) {
  // The number of rows of a stream is unknown: its epochs are counted when they end.
  if (stream_)
    return static_cast<double>(batches.epoch + (next_ && next_->epoch != batches.epoch ? 1 : 0));
  const auto steps = static_cast<double>(plan_->steps_in(batches.epoch));
  return static_cast<double>(batches.epoch) + static_cast<double>(batches.index + 1) / steps;
}

void Trainer::save() {
  consume_record();
  record_stream_place();
  save_now();
}

// Throws PeerLost if a lost rank has interrupted the step on the GPU: it has changed nothing.
StepOutcome Trainer::complete_outcome(const InFlight& step) {
  auto outcome = step.record.outcome(step.batches.step);
  if (!outcome.confirmed) throw comm::PeerLost("the sums of a step are incomplete");
  return outcome;
}

StepOutcome Trainer::repeat_until_it_fits(InFlight& step, StepOutcome outcome) {
  while (!outcome.out_of_memory.empty()) {
    divide_micro_batches(outcome, step.batches.step + 1);
    step.record = learner_->step(step.batches, step.rate, step.requests);
    outcome = complete_outcome(step);
  }
  return outcome;
}

bool Trainer::consume_record() {
  if (!in_flight_) return false;
  auto step = std::move(*in_flight_);
  in_flight_.reset();
  const auto& batches = step.batches;
  bool repeats = false;
  StepOutcome outcome;
  try {
    outcome = complete_outcome(step);
    repeats = !outcome.out_of_memory.empty();
    if (repeats) outcome = repeat_until_it_fits(step, std::move(outcome));
  } catch (const comm::PeerLost&) {
    forget_step(step);
    throw;
  }
  choose_algorithms(outcome);
  pacer_->record_times(batches.step, outcome.rank_seconds, batches.costs);
  record_requests(outcome);
  for (Interval* sum : {&interval_, &epoch_, &whole_run_}) {
    sum->step = batches.step + 1;
    sum->total_steps = total_steps_;
    sum->epoch = step.epoch;
    sum->learning_rate = step.rate;
    sum->grad_norm = outcome.grad_norm;
    sum->comm_seconds += outcome.comm_seconds / contract_.world_size;
    sum->tokens += batches.tokens;
    sum->flops += step.flops;
    sum->rank_memory = outcome.rank_memory;
    if (outcome.loss_scale) sum->loss_scale = outcome.loss_scale->next;
    sum->examples += batches.examples;
    ++sum->steps;
    if (outcome.skipped) {
      ++sum->skipped;
      continue;
    }
    sum->loss_sum += outcome.loss_sum;
    sum->correct += outcome.correct;
    sum->entropy_sum += outcome.entropy_sum;
    sum->target_tokens += batches.target_tokens;
  }
  progress_.tokens += batches.tokens;
  const double loss =
      outcome.loss_sum / static_cast<double>(std::max<std::int64_t>(1, batches.target_tokens));
  last_loss_ = outcome.skipped ? std::numeric_limits<double>::quiet_NaN() : loss;
  watch_loss(batches.step + 1);
  check_gradient(batches.step + 1, outcome);
  return repeats;
}

// Ends training when the loss has been too high for several steps in a row.
void Trainer::watch_loss(std::int64_t step) {
  if (config_.loss_watchdog_threshold <= 0 || training_over_) return;
  steps_of_high_loss_ = last_loss_ > config_.loss_watchdog_threshold ? steps_of_high_loss_ + 1 : 0;
  if (steps_of_high_loss_ < config_.loss_watchdog_patience) return;
  reporter_->note(
      fmt::format("step {}: the loss was above loss_watchdog_threshold {} for {} steps in a row: "
                  "stopping early",
                  step, config_.loss_watchdog_threshold, steps_of_high_loss_));
  end_reason_ = EndReason::early;
  training_over_ = true;
}

void Trainer::log_interval() {
  if (interval_.steps == 0) return;
  if (const auto shares = pacer_->shares_line(interval_.step - 1); !shares.empty())
    reporter_->note(fmt::format("step {}: {}", interval_.step, shares));
  report_interval(interval_);
  last_report_ = std::exchange(interval_, {});
}

void Trainer::evaluate_now() {
  consume_record();
  const StepReports::Phase phase(step_reports_, "evaluation");
  const auto result =
      evaluate(*learner_, *eval_dataset_, eval_items_, config_.per_device_eval_batch_size);
  const double seconds = std::max(result.seconds, 1e-9);
  const std::map<std::string, double> metrics{
      {"eval_loss", result.loss},
      {"eval_mean_token_accuracy", result.accuracy},
      {"eval_entropy", result.entropy},
      {"eval_runtime", result.seconds},
      {"eval_samples_per_second", static_cast<double>(result.examples) / seconds},
      {"eval_steps_per_second", static_cast<double>(result.batches) / seconds}};
  reporter_->evaluation(progress_.step, progress_.epoch, metrics);
  const auto decision = evaluate_best_model(metrics);
  if (decision.keep) {
    save();
    best_checkpoint_ = last_checkpoint_;
  }
  if (decision.stop) {
    end_reason_ = EndReason::early;
    training_over_ = true;
  }
  last_evaluated_ = progress_.step;
}

}  // namespace mgpu::train
