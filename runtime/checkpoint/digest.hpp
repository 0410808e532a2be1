#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct XXH64_state_s;

namespace mgpu::checkpoint {

// A 64-bit checksum of a stream of bytes: XXH64 with seed 0, as printed by `xxhsum -H64`. It
// detects flipped bits and torn writes at memory speed. It does not protect against forgery.
class Digest {
 public:
  Digest();
  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;
  std::string hex() const;  // 16 digits, lower case

 private:
  struct Free {
    void operator()(XXH64_state_s* state) const;
  };
  std::unique_ptr<XXH64_state_s, Free> state_;
};

std::string digest_of(std::span<const std::byte> bytes);

}  // namespace mgpu::checkpoint
