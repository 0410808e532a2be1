#pragma once

#include <cstdint>

namespace mgpu::kernels {

// Philox4x32 with 10 rounds: 128 random bits for a key and a counter.
__device__ inline uint4 philox(std::uint64_t key, std::uint64_t counter) {
  unsigned c[4] = {static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), 0, 0};
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c[2];
    const unsigned next0 = static_cast<unsigned>(b >> 32) ^ c[1] ^ k0;
    const unsigned next2 = static_cast<unsigned>(a >> 32) ^ c[3] ^ k1;
    c[1] = static_cast<unsigned>(b);
    c[3] = static_cast<unsigned>(a);
    c[0] = next0;
    c[2] = next2;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return make_uint4(c[0], c[1], c[2], c[3]);
}

}  // namespace mgpu::kernels
