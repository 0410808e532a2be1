#pragma once

#include <cstdint>

#include "runtime/config/config.hpp"

namespace mgpu::recipes {

// Rejects what a run with this number of ranks would reject before it opens the model: values of
// keys that contradict each other or are out of range, datasets that cannot be opened, rewards that
// do not exist. Needs no GPU and starts nothing. Throws train::RecipeError with all errors.
void validate(const train::TrainConfig& config, std::int64_t ranks);

}  // namespace mgpu::recipes
