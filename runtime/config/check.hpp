#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// Warnings about values that are allowed but often a mistake, one per line.
std::vector<std::string> warnings(const TrainConfig& config, std::int64_t ranks);

// The output of `mgpu-train check`: values that differ from their default, the batch arithmetic of
// a step, notes and warnings.
std::string check_text(const TrainConfig& config, const std::string& name, std::int64_t ranks);

// The model that a recipe names, also if it has mistakes; empty: none can be found.
std::string named_model(const std::string& path);

}  // namespace mgpu::train
