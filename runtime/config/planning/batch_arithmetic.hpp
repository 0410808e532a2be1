#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// What one optimizer step is made of.
struct BatchPlan {
  std::int64_t per_device = 1;
  std::int64_t ranks = 1;
  std::int64_t accumulation = 1;

  std::int64_t global() const { return per_device * ranks * accumulation; }
  friend bool operator==(const BatchPlan&, const BatchPlan&) = default;
};

// The step of a configuration on so many ranks. A global_batch_size is met exactly; throws
// RecipeError with values that would do when it cannot be.
BatchPlan plan_batch(const TrainConfig& config, std::int64_t ranks);

// The same for any task: micro-batches of a step, of which GRPO's may have places that stay free.
BatchPlan micro_batches(const TrainConfig& config, std::int64_t ranks);

// All that depends on how many ranks there are. It needs no file: ask before any is opened. Throws
// RecipeError.
void check_ranks(const TrainConfig& config, std::int64_t ranks);

// The ranks that a configuration was written for, as far as it tells; else 1.
std::int64_t ranks_meant(const TrainConfig& config);

// "8 sequences a step = 2 per device x 4 ranks x 1 accumulation"; with packing, bins.
std::string batch_sentence(const BatchPlan& plan, bool packing);

}  // namespace mgpu::train
