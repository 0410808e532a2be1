#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "runtime/kernels/kernels.hpp"

namespace mgpu::kernels {

using bf16 = __nv_bfloat16;
using f16 = __half;

// Eight elements as fp32, loaded and stored 16 bytes at a time.
struct Eight {
  float v[8];
};

__device__ inline Eight load8(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p);
  const float4 b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ inline Eight load8(const bf16* p) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __bfloat1622float2(pairs[i]);
    e.v[2 * i] = f.x;
    e.v[2 * i + 1] = f.y;
  }
  return e;
}

__device__ inline Eight load8(const f16* p) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  const auto* pairs = reinterpret_cast<const __half2*>(&raw);
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __half22float2(pairs[i]);
    e.v[2 * i] = f.x;
    e.v[2 * i + 1] = f.y;
  }
  return e;
}

__device__ inline void store8(float* p, const Eight& e) {
  *reinterpret_cast<float4*>(p) = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
  *reinterpret_cast<float4*>(p + 4) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
}

__device__ inline void store8(bf16* p, const Eight& e) {
  uint4 raw;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(e.v[2 * i], e.v[2 * i + 1]);
  *reinterpret_cast<uint4*>(p) = raw;
}

// What is beyond the range of f16 becomes infinite.
__device__ inline void store8(f16* p, const Eight& e) {
  uint4 raw;
  auto* pairs = reinterpret_cast<__half2*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(e.v[2 * i], e.v[2 * i + 1]);
  *reinterpret_cast<uint4*>(p) = raw;
}

template <class T>
__device__ inline float rounded(float x);
template <>
__device__ inline float rounded<float>(float x) {
  return x;
}
template <>
__device__ inline float rounded<bf16>(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}
template <>
__device__ inline float rounded<f16>(float x) {
  return __half2float(__float2half_rn(x));
}

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline f16 from_float<f16>(float x) {
  return __float2half_rn(x);
}
__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(bf16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(f16 x) {
  return __half2float(x);
}

// The sum over a block, returned to all its threads. `shared` has 32 floats. All threads must call
// it.
__device__ inline float block_sum(float x, float* shared) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffU, x, offset);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  const int warps = (blockDim.x + 31) / 32;
  float sum = lane < warps ? shared[lane] : 0.0F;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  return sum;
}

// These call f with a null pointer to the element type.
template <class F>
void with_type(Type type, const F& f) {
  switch (type) {
    case Type::f32:
      return f(static_cast<float*>(nullptr));
    case Type::bf16:
      return f(static_cast<bf16*>(nullptr));
    case Type::f16:
      return f(static_cast<f16*>(nullptr));
  }
}

// For gradients and moments, which are never in f16.
template <class F>
void with_f32_or_bf16(Type type, const F& f) {
  type == Type::bf16 ? f(static_cast<bf16*>(nullptr)) : f(static_cast<float*>(nullptr));
}

// For weights beside a master in f32.
template <class F>
void with_bf16_or_f16(Type type, const F& f) {
  type == Type::f16 ? f(static_cast<f16*>(nullptr)) : f(static_cast<bf16*>(nullptr));
}

}  // namespace mgpu::kernels
