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

// The digest of a file, which several threads can verify: the checksums of its blocks one after
// the other. A file of up to one block, also an empty one, has one checksum.
inline constexpr std::uint64_t kDigestBlock = std::uint64_t{256} << 20;

class FileDigest {
 public:
  explicit FileDigest(std::uint64_t block_size = kDigestBlock) : block_size_(block_size) {}
  void update(std::span<const std::byte> bytes);
  std::string hex() const;  // 16 digits for each block

 private:
  std::uint64_t block_size_, in_block_ = 0;  // `in_block_`: bytes of the last block so far
  Digest block_;
  std::string complete_;
};

std::string digest_of(std::span<const std::byte> bytes);

}  // namespace mgpu::checkpoint
