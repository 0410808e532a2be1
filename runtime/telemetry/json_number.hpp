#pragma once

#include <cmath>
#include <cstdint>

namespace mgpu::telemetry {

// A JSON number: whole numbers without a fraction, up to the size where a double is exact.
template <class Json>
Json json_number(double value) {
  if (std::floor(value) == value && std::fabs(value) < 9e15)
    return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace mgpu::telemetry
