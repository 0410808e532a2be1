#pragma once

#include <type_traits>

#include "runtime/kernels/vector.cuh"

// Matrix products of one warp on tensor cores, in 16 bits with sums in fp32.
namespace mgpu::kernels {

struct Accumulator {
  float v[4];
};

// sum += a * b, where a is 16 x 16 and b is 16 x 8, distributed over a warp as the instruction
// requires.
template <class T>
__device__ inline void multiply(Accumulator& sum, unsigned a0, unsigned a1, unsigned a2,
                                unsigned a3, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ < 800
  __trap();  // the instruction is not there: the can_...() functions of on_gpu keep such kernels
             // off such GPUs
#else
  if constexpr (std::is_same_v<T, f16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum.v[0]), "+f"(sum.v[1]), "+f"(sum.v[2]), "+f"(sum.v[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum.v[0]), "+f"(sum.v[1]), "+f"(sum.v[2]), "+f"(sum.v[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
#endif
}

// 16 bytes, as eight elements or four pairs.
struct Pack {
  unsigned v[4];
};
template <class T>
__device__ inline Pack load_pack(const T* p) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  return {{raw.x, raw.y, raw.z, raw.w}};
}

}  // namespace mgpu::kernels
