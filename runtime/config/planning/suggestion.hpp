#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/planning/known_models.hpp"
#include "runtime/config/planning/planner.hpp"

namespace mgpu::train {

// A recipe that fits, and the plan of it.
struct Suggestion {
  std::string recipe;  // the text of the file
  PlanRequest plan;
};

// A recipe for supervised fine-tuning of a known model: of all weights if that fits, else of a LoRA
// adapter, else of one on 4-bit weights. The batch size is at most that of preset_for. Throws
// std::runtime_error if nothing fits.
Suggestion suggest(const KnownModel& known, std::int64_t gpus, std::int64_t gpu_bytes);

}  // namespace mgpu::train
