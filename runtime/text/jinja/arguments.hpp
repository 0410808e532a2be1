#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "runtime/text/jinja/value.hpp"

namespace mgpu::text::jinja {

// Matches the arguments of a call to parameter names. Fails like Python if they do not fit. Keeps
// pointers to the arguments.
class Parameters {
 public:
  Parameters(std::string_view callee, const Arguments& given,
             std::initializer_list<std::string_view> names, std::size_t required = 0);

  bool has(std::size_t index) const { return values_[index] != nullptr; }
  const Value& operator[](std::size_t index) const { return *values_[index]; }
  const Value& at_or(std::size_t index, const Value& other) const {
    return has(index) ? *values_[index] : other;
  }
  bool flag(std::size_t index, bool other) const {
    return has(index) ? values_[index]->truth() : other;
  }

 private:
  std::array<const Value*, 8> values_{};
};

}  // namespace mgpu::text::jinja
