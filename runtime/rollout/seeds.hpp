#pragma once

#include <cstdint>

namespace mgpu::rollout {

// Derives a seed from a seed and a number. Adjacent numbers give unrelated seeds.
inline std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace mgpu::rollout
