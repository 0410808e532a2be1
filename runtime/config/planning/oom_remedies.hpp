#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/planning/planner.hpp"

namespace mgpu::train {

// Settings that compute the same steps with less memory, and the setting that was changed last.
struct OomRemedy {
  std::int64_t per_device = 1;
  std::int64_t micro_batch_tokens = 0;  // of GRPO, if it replaces per_device
  Recompute recompute = Recompute::no;
  std::int64_t recomputed_layers = kAllLayers;
  int zero_stage = 0;
  std::string change;  // as in a recipe: "zero_stage: 2"
};

// The changes that are tried, one after each attempt that ran out of memory, in addition to those
// before: micro-batches (micro_batch_tokens, if it is set) are halved down to one sequence, then
// layers are recomputed, then their inputs are kept on the host, then more is sharded. If the
// memory of the GPU is known, first only as many layers are recomputed as the plan requires.
// zero_stage, gradient_checkpointing and recomputed_layers must not be auto.
std::vector<OomRemedy> oom_remedies(const PlanRequest& request);

// The remedies among them that halve the micro-batch.
std::vector<OomRemedy> halvings(const std::vector<OomRemedy>& remedies);

// The settings with changes that earlier attempts have made, each as in OomRemedy::change. Left out
// are changes that would need more memory than the settings themselves, changes that the settings
// or the number of ranks exclude, and unknown text.
TrainConfig with_changes(TrainConfig config, const std::vector<std::string>& changes,
                         std::int64_t ranks);

// "per_device_train_batch_size: 2, gradient_checkpointing: true": the settings of `now` that differ
// from the recipe, as far as remedies change them.
std::string changed_settings(const TrainConfig& recipe, const TrainConfig& now);

// The number of pieces for micro-batches of these settings, if an earlier attempt divided its own
// into `pieces`: at most as many as there are sequences. (A packed sequence has any number of
// rows.)
std::int64_t pieces_for(const TrainConfig& config, std::int64_t pieces);

// The error of a job that has no remedy left: what was tried, and changes of the recipe that need
// less memory. The request has the settings without remedies. Does not throw RecipeError.
std::string no_remedy_left(const PlanRequest& request, const std::vector<std::string>& tried);

}  // namespace mgpu::train
