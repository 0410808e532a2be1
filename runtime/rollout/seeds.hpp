#pragma once

#include <cstdint>

namespace mgpu::rollout {

// A seed made of a seed and a number; near numbers make seeds that have nothing in common.
inline std::uint64_t seed_of(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace mgpu::rollout
