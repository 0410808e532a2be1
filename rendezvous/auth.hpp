#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace mgpu::rendezvous::auth {

using Digest = std::array<char, 32>;

// The bytes of an HMAC that frames and datagrams carry as their authentication code.
inline constexpr std::size_t kCodeBytes = 16;

inline std::string_view view(const Digest& digest) {
  return {digest.data(), digest.size()};
}

// HMAC-SHA256 over a list of parts. Each part is preceded by its length, so that different lists
// never hash the same bytes.
Digest hmac(std::string_view key, std::initializer_list<std::string_view> parts);

// HMAC-SHA256 as defined in RFC 2104.
Digest hmac_of(std::string_view key, std::string_view text);

// A key for one purpose, named by a label. It reveals nothing about the secret or about the keys of
// other purposes.
Digest derived_key(std::string_view secret, std::string_view purpose);

// Compares two texts in a time that depends on their lengths only.
bool equal(std::string_view a, std::string_view b);

// Random bytes from the kernel.
std::string random_bytes(std::size_t count);

std::string to_hex(std::string_view bytes);
// Empty if the text is not lower-case hex.
std::string from_hex(std::string_view text);

}  // namespace mgpu::rendezvous::auth
