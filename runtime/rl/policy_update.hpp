#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/grpo/loss.hpp"
#include "runtime/rl/dealer.hpp"
#include "runtime/rl/policy.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/train/step_record.hpp"

namespace mgpu::rl {

struct UpdateRequest {
  std::int64_t step = 0;  // steps so far
  const Deal& deal;
  const std::vector<Prompt>& prompts;
  const grpo::LossSettings& loss;
  double learning_rate = 0;
  train::Requests requests;
  std::function<std::uint64_t(std::size_t number)> dropout_seed;  // of a micro-batch of this rank
  // Called on all ranks if a micro-batch did not fit into memory; must call
  // Learner::divide_micro_batches. The step is then repeated. Empty: that ends the run, for a loss
  // that depends on the micro-batches. (The collectives of a quantile are not those of Shards.)
  std::function<void(const train::StepOutcome& outcome)> divide_micro_batches;
};

struct UpdateResult {
  train::StepOutcome outcome;
  std::map<std::string, double> metrics;  // of the loss, over all ranks
};

// Takes steps of the optimizer on completions. All ranks call it together.
class PolicyUpdate {
 public:
  // `max_tokens`: of the completions of a micro-batch. `policy` must outlive the PolicyUpdate.
  PolicyUpdate(const Policy& policy, std::int64_t max_tokens)
      : policy_(policy), max_tokens_(max_tokens) {}

  // Waits for the step.
  UpdateResult step(const UpdateRequest& request);

 private:
  train::StepRecord run_step(const UpdateRequest& request, grpo::LossMetrics& metrics);
  grpo::LossMetrics measure(const UpdateRequest& request, const MicroBatch& micro_batch);
  grpo::LossMetrics compute(const UpdateRequest& request, const MicroBatch& micro_batch);
  at::Tensor threshold(const at::Tensor& entropies, double quantile);
  std::map<std::string, double> values_of(const grpo::LossMetrics& metrics,
                                          const grpo::LossSettings& loss);

  const Policy& policy_;
  std::int64_t max_tokens_;
};

}  // namespace mgpu::rl
