#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/planning/memory_model.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::train {

// What a plan is made for. Pure values: nothing is measured here.
struct PlanRequest {
  model::ModelConfig model;
  TrainConfig config;
  std::int64_t ranks = 1;
  std::int64_t gpu_bytes = 0;  // memory of one GPU
};

// One way to make the same optimizer steps.
struct Proposal {
  std::int64_t per_device = 1;
  std::int64_t accumulation = 1;
  int zero_stage = 0;
  Recompute recompute = Recompute::no;
  std::int64_t bytes = 0;  // of one rank, all told
  double cost = 1;         // guessed time of a step against the best imaginable way

  friend bool operator==(const Proposal&, const Proposal&) = default;
};

// Batch sizes that guides recommend by the memory of all GPUs together.
struct Preset {
  std::int64_t batch_size = 1;
  std::int64_t group_size = 2;  // completions of a prompt, for GRPO
};

// Whether an estimate fits: with a margin for what the allocator cannot join up.
bool fits(const MemoryEstimate& estimate, std::int64_t gpu_bytes);

// What zero_stage: auto becomes: with several ranks the first of 1, 2 and 3 that fits without
// recomputation, else with it; 3 if none does. 1 where no GPU's memory is known; 0 where copies are
// to be compared.
int choose_zero_stage(const PlanRequest& request);

// What gradient_checkpointing: auto becomes: false if that fits, else true, else offload.
Recompute choose_recompute(const PlanRequest& request);

// The same global batch in other ways that fit, the quickest first, at most three.
std::vector<Proposal> propose(const PlanRequest& request);

// Changes of the recipe that make it fit where no proposal does, each with what it would take.
std::vector<std::string> ways_out(const PlanRequest& request);

Preset preset_for(std::int64_t total_bytes);

// What `mgpu-train plan` prints.
std::string plan_text(const PlanRequest& request);

// "32GB", "80GiB", "81920MiB", "24g": bytes. GB counts 2^30, as GPUs are sold. Throws
// std::runtime_error.
std::int64_t parse_memory(const std::string& text);

}  // namespace mgpu::train
