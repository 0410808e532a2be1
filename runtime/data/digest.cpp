#include "runtime/data/digest.hpp"

#include <openssl/evp.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

namespace mgpu::data {

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, 32> digest{};
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("libcrypto cannot compute SHA-256");
  std::string out;
  for (const unsigned char byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

// Four independent lanes keep the multiplier busy. Each step is a bijection of the lane for a given
// word and of the word for a given lane, and so is the final combination of the lanes.
std::uint64_t checksum(std::string_view bytes, std::uint64_t seed) {
  const std::uint64_t odd = 0xD6E8FEB86659FD93 ^ seed << 1;
  const auto step = [odd](std::uint64_t lane, std::uint64_t word) {
    return std::rotl((lane ^ word) * odd, 29);
  };
  std::array<std::uint64_t, 4> lanes = {0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0,
                                        0x082EFA98EC4E6C89};
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  std::array<std::uint64_t, 4> words{};
  for (; left >= sizeof(words); at += sizeof(words), left -= sizeof(words)) {
    std::memcpy(words.data(), at, sizeof(words));
    for (std::size_t i = 0; i < 4; ++i) lanes[i] = step(lanes[i], words[i]);
  }
  words = {};
  if (left > 0) std::memcpy(words.data(), at, left);
  std::uint64_t sum = bytes.size() ^ seed;
  for (std::size_t i = 0; i < 4; ++i) sum = step(sum, step(lanes[i], words[i]));
  return sum ^ (sum >> 32);
}

}  // namespace mgpu::data
