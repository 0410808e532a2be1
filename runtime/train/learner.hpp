#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/comm/rewindable.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/kernels/gemm_choices.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/loss_scaler.hpp"
#include "runtime/train/step_record.hpp"

namespace mgpu::train {

struct LearnerOptions {
  model::TransformerOptions model;
  parallel::ShardOptions shards;
  optim::MakeOptimizer optimizer;
  // How the ranks' losses become one: the mean over all target tokens of the step, else the mean
  // over ranks of each rank's own mean.
  bool weigh_by_target_tokens = true;
  bool sum_over_ranks = false;              // without weighing: the sum of the ranks' own means
  double max_grad_norm = 1;                 // 0: no clipping
  std::optional<LossScaleRule> loss_scale;  // for weights in fp16; empty: the loss is not scaled
  std::uint64_t seed = 42;
  // Waits for the device twice a step so that StepOutcome::rank_seconds covers the device's work.
  // Without it, rank_seconds is the time the host needs to queue the work.
  bool times_device = false;
  bool pin_memory = true;  // see to_device
  // A step with a micro-batch that does not fit into memory changes nothing and is reported by its
  // outcome, instead of ending the run.
  bool survives_out_of_memory = false;
  std::size_t pieces = 1;  // into which each micro-batch is divided; a power of two
  // The algorithms of matrix products, which begin_step() has told the step. Null: PyTorch's.
  ops::GemmChoices* gemms = nullptr;
  // Leaves the weights alone in a step whose sums over the ranks were interrupted on the device:
  // see Comm::interrupt.
  bool confirms_sums = false;
};

// What this rank was asked to do after the step: save a checkpoint, or save one and stop.
struct Requests {
  bool save = false, stop = false;
};

// The micro-batches of a step on this rank.
struct MicroBatches {
  std::size_t count = 0;
  // Does forward and backward of the micro-batch with this number, and adds its measurements to the
  // record.
  std::function<void(std::size_t number, StepRecord& record)> run;
  // Whether it can be divided further. Empty: a micro-batch that does not fit ends the run.
  std::function<bool(std::size_t number)> divisible;
  // Whether it contributes no gradient. Then it is not run, but skipped (see
  // parallel::Shards::skip_micro_batch). Empty: none is skipped.
  std::function<bool(std::size_t number)> skipped = {};
};

// Trains one model on all ranks of a job: it owns the weights (Shards), the arithmetic
// (Transformer) and the optimizer, and takes one optimizer step at a time. Every rank makes
// the same calls in the same order.
class Learner {
 public:
  Learner(const model::ModelConfig& config, model::ModelLayout layout,
          const LearnerOptions& options, comm::Comm& comm);

  // Creates the optimizer from the weights as they are now. Call it once, after the weights are set
  // and before the first step.
  void create_optimizer();

  // On a GPU: forward and backward of a micro-batch whose result nobody uses, so that the first
  // step need not wait until libraries have loaded their kernels and memory is allocated. The
  // weights may still be loading. Does nothing if the gradients are sharded, which would need all
  // ranks.
  void rehearse(const data::Batch& batch);

  // Queues one optimizer step: forward and backward of every micro-batch, the reduction of
  // gradients and the update. Reading the returned record waits for the step, so read it after the
  // next step has been queued. With a loss scale this waits itself: the next step needs to know
  // whether this one overflowed.
  //
  // If a micro-batch did not fit into the memory of a rank (StepOutcome::out_of_memory), nothing is
  // updated, and nothing by the steps queued since. Then call divide_micro_batches() and repeat
  // them.
  StepRecord step(const data::StepBatches& batches, double learning_rate, const Requests& requests);

  // `call` is called in each step before the weights and the optimizer's state change.
  void set_before_update(std::function<void()> call) { before_update_ = std::move(call); }

  // Divides each micro-batch into twice as many pieces in all further steps, which changes their
  // results only by rounding (and the dropout of adapters). `outcome` is that of the first step
  // that must be repeated. Throws if a micro-batch cannot be divided further: on the rank that ran
  // out of memory at once, on the other ranks after that rank has failed.
  void divide_micro_batches(const StepOutcome& outcome);
  std::size_t pieces() const { return options_.pieces; }
  void set_pieces(std::size_t pieces) { options_.pieces = pieces; }

  // The same step with a loss of the caller's own. A micro-batch's loss is to be multiplied by
  // loss_scale().
  StepRecord step(const MicroBatches& micro_batches, double learning_rate,
                  const Requests& requests);

  // Drops a step that an exception has interrupted. The weights and the optimizer's state are those
  // of the last completed step.
  void abandon_step();

  // The factor of the loss in the next step; 1 without loss scaling.
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }
  // What a checkpoint holds of it. restore_loss_scale does nothing without loss scaling.
  std::optional<LossScaleState> loss_scale_state() const;
  void restore_loss_scale(const LossScaleState& saved);

  // How long this rank has waited for other ranks in all steps so far.
  double waited_seconds() const { return waited_seconds_; }

  // Adds the sums over the target tokens of one batch of this rank to the record. After the last
  // batch the caller reduces the record.
  void evaluate(const data::Batch& batch, StepRecord& record);

  parallel::Shards& shards() { return shards_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  model::Transformer& transformer() { return transformer_; }
  comm::Comm& comm() { return comm_; }
  const LearnerOptions& options() const { return options_; }

 private:
  // Why this rank could not compute a micro-batch.
  struct Lack {
    std::string message;
    bool divisible = true;
  };

  double token_factor(const data::StepBatches& batches) const;
  void run(const MicroBatches& micro_batches, std::size_t number, StepRecord& record);
  void run_or_skip(const MicroBatches& micro_batches, std::size_t number, StepRecord& record);
  void complete_collectives(const MicroBatches& micro_batches, std::size_t number);
  void finish_step(StepRecord& record, double learning_rate);

  LearnerOptions options_;
  comm::Comm& comm_;
  comm::Rewindable shard_comm_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  parallel::Shards shards_;
  model::Transformer transformer_;
  std::function<void()> before_update_;
  std::optional<LossScaler> scaler_;
  std::optional<Lack> lack_;          // since the last divide_micro_batches()
  std::int64_t confirmed_steps_ = 0;  // with the current connections
  double waited_seconds_ = 0;
  double waited_at_end_ = 0;  // stall seconds since the last record was filled
};

}  // namespace mgpu::train
