#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace mgpu::rendezvous {

template <class Value>
inline constexpr bool is_duration = false;
template <class Count, class Period>
inline constexpr bool is_duration<std::chrono::duration<Count, Period>> = true;

// Whether a value of untrusted JSON has this type and is within its range. A duration is the number
// of its units.
template <class Value>
bool fits(const nlohmann::json& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return value.is_string();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value.is_boolean();
  } else if constexpr (is_duration<Value>) {
    return fits<typename Value::rep>(value);
  } else if (value.is_number_unsigned()) {
    return std::in_range<Value>(value.get<std::uint64_t>());
  } else {
    return value.is_number_integer() && std::in_range<Value>(value.get<std::int64_t>());
  }
}

enum class FieldState { read, absent, wrong_type };

// Reads a field of an untrusted JSON object. If it is absent or does not fit, `value` is unchanged.
template <class Value>
FieldState read_field(const nlohmann::json& object, const char* name, Value& value) {
  const auto found = object.find(name);
  if (found == object.end()) return FieldState::absent;
  if (!fits<Value>(*found)) return FieldState::wrong_type;
  if constexpr (is_duration<Value>)
    value = Value(found->template get<typename Value::rep>());
  else
    value = found->template get<Value>();
  return FieldState::read;
}

template <class Value>
void write_field(nlohmann::json& object, const char* name, const Value& value) {
  if constexpr (is_duration<Value>)
    object[name] = value.count();
  else
    object[name] = value;
}

}  // namespace mgpu::rendezvous
