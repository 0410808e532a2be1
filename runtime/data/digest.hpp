#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mgpu::data {

// SHA-256 as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

// A fast 64-bit checksum (several GB/s) that detects torn and damaged files: a change within any
// aligned 8 bytes always changes it. It does not protect against deliberate changes. Different
// seeds give different checksums.
std::uint64_t checksum(std::string_view bytes, std::uint64_t seed = 0);

}  // namespace mgpu::data
