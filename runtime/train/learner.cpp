#include "runtime/train/learner.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "rendezvous/base/seeds.hpp"
#include "runtime/profiling/range.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::train {
namespace {

using Clock = std::chrono::steady_clock;

// The seed of a micro-batch's dropout: it differs by step, rank and micro-batch.
std::uint64_t dropout_seed(std::uint64_t seed, std::int64_t step, int rank,
                           std::size_t micro_batch) {
  return rendezvous::mix_seed(
      seed, {static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank), micro_batch});
}

std::int64_t own_target_tokens(const data::StepBatches& batches) {
  std::int64_t sum = 0;
  for (const auto& micro_batch : batches.micro_batches) sum += micro_batch.target_tokens;
  return sum;
}

}  // namespace

Learner::Learner(const model::ModelConfig& config, model::ModelLayout layout,
                 const LearnerOptions& options, comm::Comm& comm)
    : options_(options),
      comm_(comm),
      shard_comm_(comm),
      shards_(config, std::move(layout), options.shards, shard_comm_),
      transformer_(config, options.model) {
  if (options_.loss_scale) scaler_.emplace(*options_.loss_scale);
}

void Learner::create_optimizer() {
  const auto owned = parallel::owned_size(shards_.buckets(), comm_.world(), shards_.sharded());
  optimizer_ = options_.optimizer(shards_.owned(), owned);
}

void Learner::rehearse(const data::Batch& batch) {
  const auto device = options_.shards.device;
  if (!device.is_cuda() || options_.shards.zero_stage > 1) return;
  const profiling::Range range("rehearsal");
  try {
    shards_.begin_micro_batch(true, false);  // the first step begins in the same way, from zero
    const auto piece = data::piece_of(batch, 0, options_.pieces);
    transformer_.train(to_device(piece, device, options_.pin_memory), 1, 0, shards_);
  } catch (const std::exception& e) {
    if (!is_out_of_memory(e)) throw;
    shards_.abandon_micro_batch();  // the first step reports it, if it needs as much
    release_unused_memory(device);
  }
}

// The factor for the loss of each target token, chosen so that the sum over all ranks is the loss
// that gradient_aggregation defines.
double Learner::token_factor(const data::StepBatches& batches) const {
  if (options_.weigh_by_target_tokens)
    return 1.0 / static_cast<double>(std::max<std::int64_t>(1, batches.target_tokens));
  const double own = static_cast<double>(std::max<std::int64_t>(1, own_target_tokens(batches)));
  if (options_.sum_over_ranks || options_.shards.reduce == parallel::Reduce::median) return 1 / own;
  const auto voters =
      std::count_if(batches.rank_target_tokens.begin(), batches.rank_target_tokens.end(),
                    [](std::int64_t target_tokens) { return target_tokens > 0; });
  return 1 / (own * static_cast<double>(std::max<std::int64_t>(1, voters)));
}

StepRecord Learner::step(const data::StepBatches& batches, double learning_rate,
                         const Requests& requests) {
  if (options_.shards.reduce == parallel::Reduce::median) {
    std::vector<bool> voters;
    for (const auto target_tokens : batches.rank_target_tokens) voters.push_back(target_tokens > 0);
    shards_.set_voters(std::move(voters));
  }
  const double scale = token_factor(batches) * loss_scale();
  const auto pieces = options_.pieces;
  const auto batch_of = [&](std::size_t number) {
    return data::piece_of(batches.micro_batches[number / pieces], number % pieces, pieces);
  };
  const auto run_piece = [&](std::size_t number, StepRecord& record) {
    const auto batch =
        pieces == 1
            ? to_device(batches.micro_batches[number], options_.shards.device, options_.pin_memory)
            : to_device(batch_of(number), options_.shards.device, options_.pin_memory);
    const auto sums = transformer_.train(
        batch, scale, dropout_seed(options_.seed, batches.step, comm_.rank(), number), shards_);
    record.add(StepRecord::kLoss, sums.loss);
    record.add(StepRecord::kCorrect, sums.correct);
    record.add(StepRecord::kEntropy, sums.entropy);
  };
  const auto divisible = [&](std::size_t number) { return batch_of(number).starts.size() > 2; };
  return step(MicroBatches{batches.micro_batches.size() * pieces, run_piece, divisible},
              learning_rate, requests);
}

StepRecord Learner::step(const MicroBatches& micro_batches, double learning_rate,
                         const Requests& requests) {
  const profiling::Range range("step");
  const auto device = options_.shards.device;
  if (options_.times_device) {  // exclude the device's remaining work of the previous step
    wait_for(device);
    waited_at_end_ += shards_.take_waited_seconds();
  }
  const auto begin = Clock::now();
  StepRecord record(device, comm_.world());
  {
    const ops::GemmChoices::Scope scope(options_.gemms);
    for (std::size_t number = 0; number < micro_batches.count; ++number)
      run(micro_batches, number, record);
  }
  if (options_.times_device) wait_for(device);
  const std::chrono::duration<double> own = Clock::now() - begin;
  const double waited = shards_.take_waited_seconds();
  record.add(StepRecord::kRankSeconds + comm_.rank(), std::max(0.0, own.count() - waited));
  record.add(StepRecord::kCommSeconds, waited + waited_at_end_);
  waited_seconds_ += waited + waited_at_end_;
  record.add_memory(comm_.rank(), peak_memory(device));
  record.add(StepRecord::kSave, requests.save ? 1.0 : 0.0);
  record.add(StepRecord::kStop, requests.stop ? 1.0 : 0.0);
  if (options_.gemms != nullptr)
    record.add(StepRecord::kNewProducts, static_cast<double>(options_.gemms->new_products()));
  if (lack_) record.add_out_of_memory(comm_.rank(), !lack_->divisible);
  finish_step(record, learning_rate);
  record.copy_to_host();
  if (scaler_) {
    const auto outcome = record.outcome(0);  // waits
    if (outcome.out_of_memory.empty()) record.set_loss_scale(scaler_->update(outcome.skipped));
  }
  return record;
}

void Learner::run(const MicroBatches& micro_batches, std::size_t number, StepRecord& record) {
  shard_comm_.mark();
  shards_.begin_micro_batch(number == 0, number + 1 == micro_batches.count);
  if (!options_.survives_out_of_memory || !micro_batches.divisible)
    return run_or_skip(micro_batches, number, record);
  try {
    return run_or_skip(micro_batches, number, record);
  } catch (const std::exception& e) {
    if (!is_out_of_memory(e)) throw;
    if (!lack_) lack_ = Lack{e.what()};
  }
  // Outside of the handler, where the exception is gone.
  lack_->divisible = lack_->divisible && micro_batches.divisible(number);
  complete_collectives(micro_batches, number);
}

void Learner::run_or_skip(const MicroBatches& micro_batches, std::size_t number,
                          StepRecord& record) {
  if (micro_batches.skipped && micro_batches.skipped(number))
    shards_.skip_micro_batch();
  else
    micro_batches.run(number, record);
}

// The other ranks wait for this rank in the collectives of the micro-batch. Takes part in the rest
// of them with a batch without work, so that all ranks reach the end of the step. In ZeRO stage 3
// all ranks skip the same micro-batches, and do not gather weights for them.
void Learner::complete_collectives(const MicroBatches& micro_batches, std::size_t number) {
  shards_.abandon_micro_batch();
  release_unused_memory(options_.shards.device);
  shard_comm_.rewind();
  shards_.begin_micro_batch(number == 0, number + 1 == micro_batches.count);
  if (micro_batches.skipped && micro_batches.skipped(number)) return shards_.skip_micro_batch();
  transformer_.train(to_device(data::batch_without_work(), options_.shards.device, false), 0, 0,
                     shards_);
}

void Learner::divide_micro_batches(const StepOutcome& outcome) {
  constexpr std::size_t kMostPieces = 1024;
  if (outcome.indivisible || options_.pieces >= kMostPieces) {
    if (lack_) throw std::runtime_error(lack_->message);
    comm_.barrier("barrier after another rank ran out of memory");
    throw std::runtime_error(
        "another rank ran out of memory and cannot divide its micro-batch further; see its "
        "message");
  }
  lack_.reset();
  options_.pieces *= 2;
}

void Learner::abandon_step() {
  wait_for(options_.shards.device);
  shards_.abandon_step();
  shards_.take_waited_seconds();
  waited_at_end_ = 0;
  shard_comm_.mark();
  lack_.reset();         // the step is taken again
  confirmed_steps_ = 0;  // as in a new process; the connections are new as well
}

std::optional<LossScaleState> Learner::loss_scale_state() const {
  if (!scaler_) return {};
  return scaler_->state();
}

void Learner::restore_loss_scale(const LossScaleState& saved) {
  if (scaler_) scaler_->restore(saved);
}

void Learner::finish_step(StepRecord& record, double learning_rate) {
  shards_.finish_gradients();
  waited_at_end_ = shards_.take_waited_seconds();  // reported with the next step
  // The gradients are still those of the scaled loss. Buckets are in fp32, where their sums do not
  // overflow. The norm, clipping and the update use the gradients divided by the scale.
  const double unscale = 1 / loss_scale();
  // With unsharded gradients every rank has the whole norm already, so only rank 0 adds it.
  if (shards_.sharded() || comm_.rank() == 0) {
    const auto squared = optimizer_->squared_gradient_norm();
    record.add(StepRecord::kSquaredNorm,
               scaler_ ? squared.to(at::kDouble).mul(unscale * unscale) : squared);
  }
  record.reduce(comm_);
  const auto norm = at::sqrt(record.values().select(0, StepRecord::kSquaredNorm)).to(at::kFloat);
  const auto clip = options_.max_grad_norm > 0
                        ? norm.add(1e-6).reciprocal().mul_(options_.max_grad_norm).clamp_max_(1)
                        : at::full({}, 1.0, norm.options());
  {
    const profiling::Range range("optimizer");
    if (before_update_) before_update_();
    auto skip = at::isfinite(norm).logical_not().to(at::kFloat);
    if (options_.confirms_sums) skip = at::maximum(skip, record.confirm(comm_, confirmed_steps_++));
    const optim::StepSettings step{learning_rate, scaler_ ? clip.mul(unscale) : clip, skip};
    optimizer_->begin_step(step);
    shards_.update([this, step](int bucket) { optimizer_->update(bucket, step); });
  }
}

void Learner::evaluate(const data::Batch& batch, StepRecord& record) {
  const profiling::Range range("evaluate");
  const auto sums =
      transformer_.evaluate(to_device(batch, options_.shards.device, options_.pin_memory), shards_);
  record.add(StepRecord::kLoss, sums.loss);
  record.add(StepRecord::kCorrect, sums.correct);
  record.add(StepRecord::kEntropy, sums.entropy);
}

}  // namespace mgpu::train
