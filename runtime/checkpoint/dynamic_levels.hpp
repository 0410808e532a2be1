#pragma once

#include <array>

// bitsandbytes' dynamic map: 256 levels in [-1, 1] or [0, 1] whose distance grows with their
// magnitude, so that an 8-bit code has about as many digits at 1e-6 as at 1.
namespace mgpu::checkpoint {

// Ascending, of both signs; there is 1 and no -1.
const std::array<float, 256>& dynamic_levels();

// Ascending from 0 on, twice as dense.
const std::array<float, 256>& positive_dynamic_levels();

}  // namespace mgpu::checkpoint
