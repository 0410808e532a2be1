#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mgpu::checkpoint {

// A 64-bit checksum of a stream of bytes: XXH64 with seed 0, as printed by `xxhsum -H64`. It
// detects flipped bits and torn writes at memory speed. It does not protect against forgery.
class Digest {
 public:
  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;
  std::string hex() const;  // 16 digits, lower case

 private:
  static constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F;

  std::array<std::uint64_t, 4> lanes_{kPrime1 + kPrime2, kPrime2, 0, std::uint64_t{0} - kPrime1};
  std::array<std::byte, 32> pending_{};  // bytes that do not fill a stripe yet
  std::uint64_t length_ = 0;
};

std::string digest_of(std::span<const std::byte> bytes);

}  // namespace mgpu::checkpoint
