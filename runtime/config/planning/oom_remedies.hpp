#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/planning/planner.hpp"

namespace mgpu::train {

// Settings that compute the same steps with less memory, and the setting that was changed last.
struct OomRemedy {
  std::int64_t per_device = 1;
  Recompute recompute = Recompute::no;
  int zero_stage = 0;
  std::string change;  // as in a recipe: "zero_stage: 2"
};

// The changes that are tried, one after each attempt that ran out of memory, in addition to those
// before: micro-batches are halved down to one sequence, then layers are recomputed, then their
// inputs are kept on the host, then more is sharded. zero_stage and gradient_checkpointing must not
// be auto.
std::vector<OomRemedy> oom_remedies(const TrainConfig& config, std::int64_t ranks);

// Whether smaller micro-batches have the same loss. Not with GRPO losses that contain a mean or a
// quantile over each micro-batch.
bool may_divide_micro_batches(const TrainConfig& config);

// How many of the remedies halve the micro-batch. They come first.
std::size_t halvings(const std::vector<OomRemedy>& remedies);

// "per_device_train_batch_size: 2, gradient_checkpointing: true": the settings that the first
// `count` remedies have changed.
std::string changes_of(const std::vector<OomRemedy>& remedies, std::size_t count);

// The error of a job that has no remedy left: what was tried, and changes of the recipe that need
// less memory. The request has the settings without remedies.
std::string no_remedy_left(const PlanRequest& request, const std::vector<OomRemedy>& remedies);

}  // namespace mgpu::train
