#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::recipes {

// Rejects what a run with this number of ranks would reject before it opens the model: values of
// keys that contradict each other or are out of range, datasets that cannot be opened, rewards that
// do not exist. Needs no GPU and starts nothing. Throws train::RecipeError with all errors.
void validate(const train::TrainConfig& config, std::int64_t ranks);

// One line for each folder of a model, an adapter or a tokenizer that the recipe names and that
// does not exist. Names of a hub are not looked for.
std::vector<std::string> missing_folders(const train::TrainConfig& config);

// Throws train::RecipeError if there are any: restarts would not help.
void require_folders(const train::TrainConfig& config);

// Rejects what a run would reject when it has opened the configuration and the tokenizer of its
// model, which are in this folder; the weights need not be there.
void check_model(train::TrainConfig config, const std::string& folder);

}  // namespace mgpu::recipes
