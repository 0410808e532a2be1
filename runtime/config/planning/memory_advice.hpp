#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// The last words of a rank that ran out of memory: what the allocator said in one line, what the
// recipe asked for, and the keys that would need less and that it does not use to the full yet.
// None if the error speaks of something else.
std::optional<std::string> out_of_memory_text(const std::string& error, const TrainConfig& config,
                                              std::int64_t ranks);

}  // namespace mgpu::train
