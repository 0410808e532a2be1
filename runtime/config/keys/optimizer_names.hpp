#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/reading/yaml_read.hpp"

namespace mgpu::train {

// Maps other trainers' names of optimizers and schedules to ours. Each function throws
// std::runtime_error with the list of supported names.

// Sets `optim` to adamw_torch_fused or adamw_8bit. Paged variants run unpaged, with a note.
void set_optimizer(TrainConfig& config, const YamlNode& value);

// Reads `betas: [0.9, 0.999]`.
void set_betas(TrainConfig& config, const YamlNode& value);

void set_scheduler(TrainConfig& config, const YamlNode& value);

// Reads `lr_scheduler_kwargs` and checks it against the schedule. Requires: set_scheduler was
// called before, or the default schedule applies.
void set_scheduler_numbers(TrainConfig& config, const YamlNode& value);

// The values of lr_scheduler_type.
std::vector<std::string> scheduler_names();

}  // namespace mgpu::train
