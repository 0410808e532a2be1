#include "runtime/checkpoint/digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace mgpu::checkpoint {

namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5;
constexpr std::size_t kStripe = 32;

template <class Number>
Number load(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

void take_stripe(std::array<std::uint64_t, 4>& lanes, const std::byte* stripe) {
  for (int i = 0; i < 4; ++i) lanes[i] = mixed(lanes[i], load<std::uint64_t>(stripe + 8 * i));
}

// The bytes after the last full stripe: 8 at a time, then 4, then single bytes.
std::uint64_t with_tail(std::uint64_t hash, std::span<const std::byte> tail) {
  for (; tail.size() >= 8; tail = tail.subspan(8))
    hash = std::rotl(hash ^ mixed(0, load<std::uint64_t>(tail.data())), 27) * kPrime1 + kPrime4;
  if (tail.size() >= 4) {
    hash = std::rotl(hash ^ (load<std::uint32_t>(tail.data()) * kPrime1), 23) * kPrime2 + kPrime3;
    tail = tail.subspan(4);
  }
  for (const std::byte byte : tail)
    hash = std::rotl(hash ^ (std::to_integer<std::uint64_t>(byte) * kPrime5), 11) * kPrime1;
  return hash;
}

}  // namespace

void Digest::update(std::span<const std::byte> bytes) {
  const std::size_t pending = length_ % kStripe;
  length_ += bytes.size();
  if (pending != 0) {
    const std::size_t taken = std::min(kStripe - pending, bytes.size());
    std::copy_n(bytes.begin(), taken, pending_.begin() + static_cast<std::ptrdiff_t>(pending));
    bytes = bytes.subspan(taken);
    if (pending + taken < kStripe) return;
    take_stripe(lanes_, pending_.data());
  }
  auto lanes = lanes_;  // in registers, because `bytes` might alias this object
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) take_stripe(lanes, bytes.data());
  lanes_ = lanes;
  std::copy(bytes.begin(), bytes.end(), pending_.begin());
}

std::uint64_t Digest::value() const {
  std::uint64_t hash = kPrime5;
  if (length_ >= kStripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ mixed(0, lane)) * kPrime1 + kPrime4;
  }
  hash = with_tail(hash + length_, std::span(pending_).first(length_ % kStripe));
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
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
