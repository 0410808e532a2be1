#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/checkpoint/dtype.hpp"

namespace mgpu::checkpoint {

// Elements of F32, BF16 or F16, at any address, as floats, and back rounded to the nearest even.
// Throws for other types.
std::vector<float> to_floats(DType dtype, std::span<const std::byte> bytes);
std::vector<std::byte> from_floats(DType dtype, std::span<const float> values);

}  // namespace mgpu::checkpoint
