#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// Whether an error message is one of LibTorch, CUDA or cuBLAS about missing memory.
bool reports_out_of_memory(std::string_view error);

// The failure report of a rank that ran out of memory: the allocator's message in one line, the
// settings that determined the memory, and changes of the recipe that lower it. Empty if `error` is
// about something else.
std::optional<std::string> out_of_memory_text(const std::string& error, const TrainConfig& config,
                                              std::int64_t ranks);

}  // namespace mgpu::train
