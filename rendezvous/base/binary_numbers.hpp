#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace mgpu::rendezvous {

// Appends a number in host byte order.
template <class Number>
  requires std::is_integral_v<Number>
void put_number(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// The number that begins at this offset, which must leave enough bytes for it.
template <class Number>
  requires std::is_integral_v<Number>
Number number_at(std::string_view bytes, std::size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

}  // namespace mgpu::rendezvous
