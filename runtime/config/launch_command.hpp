#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/command_line.hpp"

namespace mgpu::train {

// The command line of mgpu-run that trains as `command` does, on this number of ranks.
std::string launch_command(const RunCommand& command, std::int64_t ranks);

// The number of ranks that a recipe sets with a key of the launcher, such as num_gpus: 4, at the
// top level or in its launch: section. Empty if it sets none, or a word. Throws std::runtime_error
// if the file cannot be read.
std::optional<std::int64_t> ranks_of_recipe(const RecipeArguments& recipe);

// Whether the recipe has options of mgpu-run, which mgpu-train does not check.
bool has_launch_section(const RecipeArguments& recipe);

}  // namespace mgpu::train
