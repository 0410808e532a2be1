#include "runtime/checkpoint/digest.hpp"

#include <fmt/format.h>
#include <xxhash.h>

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

std::string digest_of(std::span<const std::byte> bytes) {
  Digest digest;
  digest.update(bytes);
  return digest.hex();
}

}  // namespace mgpu::checkpoint
