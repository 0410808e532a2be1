#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/planning/memory_model.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::train {

// The input of a plan. Nothing is measured.
struct PlanRequest {
  model::ModelConfig model;
  TrainConfig config;
  std::int64_t ranks = 1;
  std::int64_t gpu_bytes = 0;  // memory of one GPU
  std::int64_t gpus = 0;       // of the job, if more than ranks: roles may have their own GPUs
  bool wants_copies = false;   // of the training's state on every rank, if they fit
};

// What is recomputed: how, and how many layers from the first one on.
struct Recomputation {
  Recompute way = Recompute::no;
  std::int64_t layers = kAllLayers;

  friend bool operator==(const Recomputation&, const Recomputation&) = default;
};

// One set of settings that makes the same optimizer steps.
struct Proposal {
  std::int64_t per_device = 1;
  std::int64_t accumulation = 1;
  int zero_stage = 0;
  Recompute recompute = Recompute::no;
  std::int64_t recomputed_layers = kAllLayers;
  std::int64_t bytes = 0;  // total of one rank
  double cost = 1;         // estimated time of a step, relative to the best possible

  friend bool operator==(const Proposal&, const Proposal&) = default;
};

// Batch sizes that common guides recommend for a total GPU memory.
struct Preset {
  std::int64_t batch_size = 1;
  std::int64_t group_size = 2;  // completions per prompt, for GRPO
};

// Whether an estimate fits, with a margin for fragmentation.
bool fits(const MemoryEstimate& estimate, std::int64_t gpu_bytes);

// Whether the settings fit, if need be with the embedding in host memory where that is open.
bool plan_fits(const PlanRequest& request, const TrainConfig& config);

// The ZeRO stage for zero_stage: auto. With several ranks it is the first of 1, 2 and 3 that fits
// without recomputation, else with recomputation; 3 if none fits; 1 if the memory of the GPU is
// unknown. 0 for one rank, and with consistency_check_steps, which compares copies.
int choose_zero_stage(const PlanRequest& request);

// The values for gradient_checkpointing: auto and recomputed_layers: auto: nothing is recomputed if
// that fits or if the memory of the GPU is unknown, else as few layers as are needed; if all are
// not enough, auto is offload. Throws RecipeError if the model has fewer layers than
// recomputed_layers.
Recomputation choose_recompute(const PlanRequest& request);

// The value for offload_embedding: auto, with the other settings chosen: whether they fit only with
// the embedding in host memory. The planner always counts on that before it recomputes layers,
// which takes far longer. After an attempt that ran out of memory it is moved wherever that is
// possible. Throws RecipeError if it is true and the model's embedding is its head.
bool choose_offload_embedding(const PlanRequest& request, bool ran_out = false);

// The settings with what was chosen.
TrainConfig with_recomputation(TrainConfig config, const Recomputation& chosen);

// The smallest number of recomputed layers with which this way of recomputing fits; kAllLayers if
// all are needed. Empty if they are not enough.
std::optional<std::int64_t> fewest_layers(const PlanRequest& request, Recompute way);

// How many layers to recompute after these settings did not fit: the smallest number whose
// estimate, with the margin, is below the estimate of these settings, and fits into the GPU.
// kAllLayers if all are needed, or if the memory of the GPU is unknown.
std::int64_t layers_after_failure(const PlanRequest& failed);

// At most three settings with the same global batch that fit, the fastest first.
std::vector<Proposal> propose(const PlanRequest& request);

// If there is no proposal: changes of the recipe that make it fit, each with the memory it needs.
std::vector<std::string> fitting_changes(const PlanRequest& request);

Preset preset_for(std::int64_t total_bytes);

// A row of the table of settings in the guide to GSPO on three GPUs.
struct TunedPreset {
  const char* purpose;
  std::int64_t batch_size, group_size;
  std::int64_t passes;  // over each generation: num_iterations
};

inline constexpr TunedPreset kTunedPresets[] = {
    {"3 GPUs of 16 GiB or more", 4, 8, 4},
    {"3 GPUs of 8 GiB", 1, 4, 4},
    {"speed", 8, 4, 2},
};

// An error message if the chosen settings do not fit into the memory of a GPU: what would be needed
// and what to change. zero_stage and gradient_checkpointing must not be auto. Empty if it fits or
// if the GPU's memory is unknown.
std::optional<std::string> memory_error(const PlanRequest& request);

const char* recompute_word(Recompute recompute);  // as in recipes

// "true", or "true, recomputed_layers: 12" with another separator.
std::string recompute_text(const Recomputation& chosen, const char* separator = ": ");

// The output of `mgpu-train plan`.
std::string plan_text(const PlanRequest& request);

// The bytes of an amount such as "32GB", "80GiB", "81920MiB" or "24g". GB is 2^30 bytes, as in the
// names of GPUs. Throws std::runtime_error.
std::int64_t parse_memory(const std::string& text);

}  // namespace mgpu::train
