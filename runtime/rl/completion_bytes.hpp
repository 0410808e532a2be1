#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/rl/generation.hpp"

namespace mgpu::rl {

// Completions as bytes, for ranks of one job to exchange: numbers as they are in memory, each list
// after its length. Floats keep every bit, also those of NaN.
std::vector<std::byte> to_bytes(std::span<const ScoredCompletion> completions);

// Throws std::runtime_error if the bytes are not exactly those of to_bytes().
std::vector<ScoredCompletion> completions_from(std::span<const std::byte> bytes);

}  // namespace mgpu::rl
