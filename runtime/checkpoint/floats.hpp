#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/checkpoint/dtype.hpp"

namespace mgpu::checkpoint {

// Converts elements of F32, BF16 or F16, at any alignment, to floats, and back with rounding to
// nearest even. Throws for other types.
std::vector<float> to_floats(DType dtype, std::span<const std::byte> bytes);
std::vector<std::byte> from_floats(DType dtype, std::span<const float> values);

}  // namespace mgpu::checkpoint
