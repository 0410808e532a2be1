#pragma once

#include <cstdint>
#include <initializer_list>

namespace mgpu::rendezvous {

// Seeds made from numbers. The order of the data, dropout and sampling of every run depend on these
// values: they never change.

// The step of SplitMix64's state: 2^64 divided by the golden ratio.
inline constexpr std::uint64_t kGoldenStep = 0x9E3779B97F4A7C15;

// SplitMix64's finalizer: every input bit affects every output bit.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The seed with this number, from 0, of those that a seed stands for. Adjacent numbers give
// unrelated seeds.
constexpr std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) {
  return mix_bits(seed + (number + 1) * kGoldenStep);
}

// One seed for a seed and all the numbers that a random stream depends on, in this order.
constexpr std::uint64_t mix_seed(std::uint64_t seed, std::initializer_list<std::uint64_t> numbers) {
  for (const std::uint64_t number : numbers) {
    seed = (seed ^ number) * kGoldenStep;
    seed ^= seed >> 29;
  }
  return seed;
}

}  // namespace mgpu::rendezvous
