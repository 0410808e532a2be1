#include "runtime/checkpoint/digest.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <new>

namespace mgpu::checkpoint {

void Digest::Free::operator()(XXH64_state_s* state) const {
  XXH64_freeState(state);
}

Digest::Digest() : state_(XXH64_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH64_reset(state_.get(), 0);
}

void Digest::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH64_update(state_.get(), bytes.data(), bytes.size());
}

std::uint64_t Digest::value() const {
  return XXH64_digest(state_.get());
}

std::string Digest::hex() const {
  return fmt::format("{:016x}", value());
}

void FileDigest::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (in_block_ == block_size_) {  // a block ends only when another byte follows
      complete_ += block_.hex();
      block_ = Digest();
      in_block_ = 0;
    }
    const auto part = bytes.first(
        static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), block_size_ - in_block_)));
    block_.update(part);
    in_block_ += part.size();
    bytes = bytes.subspan(part.size());
  }
}

std::string FileDigest::hex() const {
  return complete_ + block_.hex();
}

std::string digest_of(std::span<const std::byte> bytes) {
  Digest digest;
  digest.update(bytes);
  return digest.hex();
}

}  // namespace mgpu::checkpoint
