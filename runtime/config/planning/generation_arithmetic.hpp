#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// How many completions one generation has and how many one optimizer step trains on. Both numbers
// are sums over all ranks. A rank need not have a whole number of groups, nor as many completions
// as the others: unused places are filled with weight 0.
struct GenerationSizes {
  std::int64_t per_device = 1;  // completions of a micro-batch
  std::int64_t ranks = 1;
  std::int64_t group = 8;       // completions per prompt
  std::int64_t step = 8;        // completions per optimizer step
  std::int64_t generation = 8;  // completions per generation, in whole groups
  std::int64_t iterations = 1;  // training passes over each generation
  // Of a micro-batch, instead of per_device completions; 0: none. Does not change the other sizes.
  std::int64_t micro_batch_tokens = 0;
  std::vector<std::string> notes;  // values that were chosen because no key sets them

  std::int64_t prompts() const { return generation / group; }  // prompts per generation
  std::int64_t accumulation() const;                           // micro-batches of a rank in a step
  // Whether no optimizer step lies between generating a completion and training on it, so that its
  // log-probabilities have not changed.
  bool on_policy() const { return step % (generation * iterations) == 0; }
};

// TRL's batch arithmetic for a recipe of task grpo: per_device_train_batch_size counts completions,
// and steps_per_generation is gradient_accumulation_steps unless it or generation_batch_size is
// set. Without gradient_accumulation_steps the smallest number that makes whole groups is used,
// with a note. global_batch_size is met exactly at any number of ranks. Throws RecipeError with
// values that work.
GenerationSizes plan_generation(const TrainConfig& config, std::int64_t ranks);

// "24 completions per step = 2 per device x 3 ranks x 4 accumulation; 24 per generation = 3 prompts
// x 8".
std::string generation_sentence(const GenerationSizes& sizes);

}  // namespace mgpu::train
