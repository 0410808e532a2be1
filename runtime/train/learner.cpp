#include "runtime/train/learner.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <chrono>

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
      shards_(config, std::move(layout), options.shards, comm),
      transformer_(config, options.model) {
  if (options_.loss_scale) scaler_.emplace(*options_.loss_scale);
}

void Learner::create_optimizer() {
  const auto owned = parallel::owned_size(shards_.buckets(), comm_.world(), shards_.sharded());
  optimizer_ = options_.optimizer(shards_.owned(), owned);
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
  const auto run_micro_batch = [&](std::size_t number, StepRecord& record) {
    const auto sums = transformer_.train(
        to_device(batches.micro_batches[number], options_.shards.device, options_.pin_memory),
        scale, dropout_seed(options_.seed, batches.step, comm_.rank(), number), shards_);
    record.add(StepRecord::kLoss, sums.loss);
    record.add(StepRecord::kCorrect, sums.correct);
    record.add(StepRecord::kEntropy, sums.entropy);
  };
  return step(batches.micro_batches.size(), run_micro_batch, learning_rate, requests);
}

StepRecord Learner::step(std::size_t micro_batches, const RunMicroBatch& run_micro_batch,
                         double learning_rate, const Requests& requests) {
  const profiling::Range range("step");
  const auto device = options_.shards.device;
  if (options_.times_device) {  // exclude the device's remaining work of the previous step
    wait_for(device);
    waited_at_end_ += shards_.take_waited_seconds();
  }
  const auto begin = Clock::now();
  StepRecord record(device, comm_.world());
  for (std::size_t number = 0; number < micro_batches; ++number) {
    shards_.begin_micro_batch(number == 0, number + 1 == micro_batches);
    run_micro_batch(number, record);
  }
  if (options_.times_device) wait_for(device);
  const std::chrono::duration<double> own = Clock::now() - begin;
  const double waited = shards_.take_waited_seconds();
  record.add(StepRecord::kRankSeconds + comm_.rank(), std::max(0.0, own.count() - waited));
  record.add(StepRecord::kCommSeconds, waited + waited_at_end_);
  record.add_memory(comm_.rank(), peak_memory(device));
  record.add(StepRecord::kSave, requests.save ? 1.0 : 0.0);
  record.add(StepRecord::kStop, requests.stop ? 1.0 : 0.0);
  finish_step(record, learning_rate);
  record.copy_to_host();
  if (scaler_) record.set_loss_scale(scaler_->update(record.outcome(0).skipped));  // waits
  return record;
}

void Learner::abandon_step() {
  wait_for(options_.shards.device);
  shards_.abandon_step();
  shards_.take_waited_seconds();
  waited_at_end_ = 0;
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
    auto skip = at::isfinite(norm).logical_not().to(at::kFloat);
    if (options_.confirms_sums) skip = at::maximum(skip, record.incomplete());
    optimizer_->step(learning_rate, scaler_ ? clip.mul(unscale) : clip, skip);
  }
  shards_.gather_updated();
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
