#pragma once

#include <cuda_fp8.h>

#include "runtime/kernels/fp8_kernels.hpp"
#include "runtime/kernels/vector.cuh"

// What kernels need that write E4M3 with a scale per block: 16 neighbouring threads have 8 elements
// of a block each.
namespace mgpu::kernels::fp8 {

inline constexpr int kThreads = 256;
inline constexpr int kBlock = 128;         // elements that share a scale, in each direction
inline constexpr int kLanes = kBlock / 8;  // threads that read a row of a block
inline constexpr int kRowsPerPass = kThreads / kLanes;
inline constexpr float kLargest = 448.0F;     // of E4M3
inline constexpr float kLeastBlock = 1e-30F;  // as kLeastFp8Block

// The bits of |x|, whose order as numbers is that of the magnitudes. NaN is the largest: unlike the
// maximum of floats, that of bits keeps it.
__device__ inline unsigned magnitude(float x) {
  return __float_as_uint(x) & 0x7fffffffU;
}

__device__ inline unsigned largest_of(const Eight& e) {
  unsigned largest = 0;
#pragma unroll
  for (float v : e.v) largest = max(largest, magnitude(v));
  return largest;
}

// Over `lanes` neighbouring threads of a warp.
template <int lanes>
__device__ unsigned largest_among(unsigned x) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    x = max(x, __shfl_xor_sync(0xffffffffU, x, offset));
  return x;
}

struct Scale {
  float scale, inverse;
};

__device__ inline Scale scale_of(unsigned largest_bits) {
  const float largest = __uint_as_float(largest_bits);
  const float used = largest < kLeastBlock ? kLeastBlock : largest;  // NaN stays
  return {__fdiv_rn(used, kLargest), __fdiv_rn(kLargest, used)};
}

__device__ inline void store_codes(std::uint8_t* to, const Eight& e, float inverse) {
  unsigned words[2];
#pragma unroll
  for (int word = 0; word < 2; ++word) {
    unsigned pairs[2];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const float2 two =
          make_float2(e.v[4 * word + 2 * pair] * inverse, e.v[4 * word + 2 * pair + 1] * inverse);
      pairs[pair] = __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, __NV_E4M3);
    }
    words[word] = pairs[0] | pairs[1] << 16;
  }
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
}

inline unsigned blocks_for(std::int64_t blocks) {
  return static_cast<unsigned>(blocks);
}

}  // namespace mgpu::kernels::fp8
