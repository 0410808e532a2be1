#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace mgpu::rendezvous::auth {

using Digest = std::array<char, 32>;

inline std::string_view view(const Digest& digest) {
  return {digest.data(), digest.size()};
}

// HMAC-SHA256 over parts, each with its length before it, so that no two lists are one text.
Digest hmac(std::string_view key, std::initializer_list<std::string_view> parts);

// HMAC-SHA256 as RFC 2104 has it.
Digest hmac_of(std::string_view key, std::string_view text);

// Whether two texts are the same, in a time that depends on their lengths only.
bool equal(std::string_view a, std::string_view b);

// Random bytes from the kernel.
std::string random_bytes(std::size_t count);

std::string to_hex(std::string_view bytes);
// Empty when the text is no hex.
std::string from_hex(std::string_view text);

}  // namespace mgpu::rendezvous::auth
