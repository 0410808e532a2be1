#pragma once

#include <array>

// bitsandbytes' dynamic map: 256 levels in [-1, 1] or [0, 1]. Their distance grows with their
// magnitude, so an 8-bit code has about the same number of significant digits at 1e-6 as at 1.
namespace mgpu::checkpoint {

// The signed levels, ascending. 1 is a level, -1 is not.
const std::array<float, 256>& dynamic_levels();

// The unsigned levels, ascending from 0, twice as dense.
const std::array<float, 256>& positive_dynamic_levels();

}  // namespace mgpu::checkpoint
