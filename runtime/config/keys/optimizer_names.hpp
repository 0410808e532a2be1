#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/reading/yaml_read.hpp"

namespace mgpu::train {

// What other systems call optimizers and schedules, and what we have instead. Each throws
// std::runtime_error with the list of what there is.

// `optim`: adamw_torch_fused or adamw_8bit; paged variants run unpaged, with a note.
void set_optimizer(TrainConfig& config, const YamlNode& value);

// `betas: [0.9, 0.999]`.
void set_betas(TrainConfig& config, const YamlNode& value);

void set_scheduler(TrainConfig& config, const YamlNode& value);

// Checks `lr_scheduler_kwargs` against the schedule, which must be set before.
void set_scheduler_numbers(TrainConfig& config, const YamlNode& value);

// The names that lr_scheduler_type takes.
std::vector<std::string> scheduler_names();

}  // namespace mgpu::train
