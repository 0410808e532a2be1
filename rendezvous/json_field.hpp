#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace mgpu::rendezvous {

// Whether a value of untrusted JSON has this type and is within its range.
template <class Value>
bool fits(const nlohmann::json& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return value.is_string();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value.is_boolean();
  } else if (value.is_number_unsigned()) {
    return std::in_range<Value>(value.get<std::uint64_t>());
  } else {
    return value.is_number_integer() && std::in_range<Value>(value.get<std::int64_t>());
  }
}

}  // namespace mgpu::rendezvous
