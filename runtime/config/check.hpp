#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// What is allowed and yet often a mistake, a line each.
std::vector<std::string> warnings(const TrainConfig& config, std::int64_t ranks);

// What a recipe was understood to ask for: values that are not the default, a step's arithmetic,
// notes, warnings. What `mgpu-train --check` prints.
std::string check_text(const TrainConfig& config, const std::string& name, std::int64_t ranks);

}  // namespace mgpu::train
