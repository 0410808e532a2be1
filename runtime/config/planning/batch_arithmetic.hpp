#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// The composition of one optimizer step.
struct BatchPlan {
  std::int64_t per_device = 1;
  std::int64_t ranks = 1;
  std::int64_t accumulation = 1;

  std::int64_t global() const { return per_device * ranks * accumulation; }
  friend bool operator==(const BatchPlan&, const BatchPlan&) = default;
};

// Throws RecipeError unless a job can have this number of ranks.
void check_number_of_ranks(std::int64_t ranks);

// The step of a configuration on `ranks` ranks. A global_batch_size is met exactly; if that is
// impossible, it throws RecipeError with values that work.
BatchPlan plan_batch(const TrainConfig& config, std::int64_t ranks);

// The micro-batches of a step for any task. With GRPO the last ones may have unused places.
BatchPlan micro_batches(const TrainConfig& config, std::int64_t ranks);

// Checks everything that depends on the number of ranks. It opens no file, so it can be called
// before any file is opened. Throws RecipeError.
void check_ranks(const TrainConfig& config, std::int64_t ranks);

// The number of ranks that a configuration was written for, if it follows from the keys; else 1.
std::int64_t intended_ranks(const TrainConfig& config);

// "8 sequences per step = 2 per device x 4 ranks x 1 accumulation"; with packing, bins.
std::string batch_sentence(const BatchPlan& plan, bool packing);

}  // namespace mgpu::train
