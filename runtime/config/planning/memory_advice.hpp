#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/config.hpp"
#include "runtime/config/planning/planner.hpp"

namespace mgpu::train {

// Whether an error message is one of LibTorch, CUDA or cuBLAS about missing memory.
bool reports_out_of_memory(std::string_view error);

// The failure report of a rank that ran out of memory: the allocator's message in one line, the
// settings that determined the memory, and changes of the recipe that lower it. With a plan that
// knows the memory of the GPU, no more layers are recomputed than it requires. Empty if `error` is
// about something else.
std::optional<std::string> out_of_memory_text(const std::string& error, const TrainConfig& config,
                                              std::int64_t ranks,
                                              const std::optional<PlanRequest>& plan = {});

}  // namespace mgpu::train
