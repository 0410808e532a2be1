#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// How many completions are generated at a time and how many an optimizer step learns from. Both
// count over all ranks, and no rank needs a whole number of groups, or as many as another: places
// that are left over are filled with weight 0.
struct GenerationSizes {
  std::int64_t per_device = 1;  // completions of a micro-batch
  std::int64_t ranks = 1;
  std::int64_t group = 8;          // completions of a prompt
  std::int64_t step = 8;           // completions of an optimizer step
  std::int64_t generation = 8;     // completions generated at a time, in whole groups
  std::int64_t iterations = 1;     // times each is learnt from
  std::vector<std::string> notes;  // what was chosen because nobody said it

  std::int64_t prompts() const { return generation / group; }  // generated for at a time
  std::int64_t accumulation() const;                           // micro-batches of a rank in a step
  // No step of the optimizer lies between generating a completion and learning from it, so that the
  // log-probs of then are those of now.
  bool on_policy() const { return step % (generation * iterations) == 0; }
};

// TRL's arithmetic for a recipe of task grpo: per_device_train_batch_size counts completions, and
// steps_per_generation is gradient_accumulation_steps unless it or generation_batch_size is said.
// Without gradient_accumulation_steps it is the least that makes whole groups, with a note;
// global_batch_size is met exactly at any number of ranks. Throws RecipeError with the values that
// would do.
GenerationSizes plan_generation(const TrainConfig& config, std::int64_t ranks);

// "24 completions a step = 2 per device x 3 ranks x 4 accumulation; 24 generated at a time = 3
// prompts x 8".
std::string generation_sentence(const GenerationSizes& sizes);

}  // namespace mgpu::train
