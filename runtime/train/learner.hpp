#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/step_record.hpp"

namespace mgpu::train {

struct LearnerOptions {
  model::TransformerOptions model;
  parallel::ShardOptions shards;
  optim::AdamWOptions optimizer;
  bool weigh_by_target_tokens = true;  // false: the mean over ranks of each rank's own mean
  bool sum_over_ranks = false;         // each rank's own mean, added up
  double max_grad_norm = 1;            // 0: not clipped
  std::uint64_t seed = 42;
  // Waits for the device twice a step, so that the time of each rank's own work is known; else it
  // is the host's, which a GPU's work is not in.
  bool times_device = false;
};

// Whether somebody has asked this rank to save, or to save and end.
struct Requests {
  bool save = false, stop = false;
};

// A model that learns: weights, optimizer and one step of them, on all ranks together.
class Learner {
 public:
  Learner(const model::ModelConfig& config, model::ModelLayout layout,
          const LearnerOptions& options, comm::Comm& comm);

  // Call once the weights are set, before the first step.
  void begin();

  // Queues a step: forward and backward of every micro-batch, the exchange of gradients, the
  // update. Read the record when the next step has been queued.
  StepRecord step(const data::StepBatches& batches, double learning_rate, const Requests& requests);

  // The same with micro-batches of any kind: `micro` does forward and backward of each, adds what
  // is to be known of it to the record, and is given its number.
  using RunMicroBatch = std::function<void(std::size_t number, StepRecord& record)>;
  StepRecord step(std::size_t micro_batches, const RunMicroBatch& run_micro_batch,
                  double learning_rate, const Requests& requests);

  // Sums over the labels of this rank's batches, added to the record; reduce it when all are in.
  void evaluate(const data::Batch& batch, StepRecord& record);

  parallel::Shards& shards() { return shards_; }
  optim::AdamW& optimizer() { return *optimizer_; }
  model::Transformer& transformer() { return transformer_; }
  comm::Comm& comm() { return comm_; }
  const LearnerOptions& options() const { return options_; }

 private:
  double scale_of(const data::StepBatches& batches) const;
  void finish_step(StepRecord& record, double learning_rate);

  LearnerOptions options_;
  comm::Comm& comm_;
  parallel::Shards shards_;
  model::Transformer transformer_;
  std::unique_ptr<optim::AdamW> optimizer_;
  double waited_at_end_ = 0;
};

}  // namespace mgpu::train
