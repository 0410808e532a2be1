#include <array>

#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/nf4_layout.hpp"
#include "runtime/kernels/vector.cuh"

namespace mgpu::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // words of eight elements that a thread dequantizes

__constant__ std::array<float, 16> kLevels = ops::kNf4Levels;

__device__ float scale_of(const Nf4Scales& s, std::int64_t block) {
  if (s.plain != nullptr) return s.plain[block];
  // Rounded twice, as in bitsandbytes: no fused multiply-add.
  return __fadd_rn(__fmul_rn(s.levels[s.indices[block]], s.outer[block / ops::kNestedBlock]),
                   *s.offset);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const unsigned* __restrict__ codes, Nf4Scales scales, std::int64_t words,
                      T* __restrict__ out) {
  __shared__ float levels[16];  // one bank per level, so that lanes do not conflict
  if (threadIdx.x < 16) levels[threadIdx.x] = kLevels[threadIdx.x];
  __syncthreads();
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kThreads * kWords + threadIdx.x;
  unsigned word[kWords] = {};
  float scale[kWords] = {};
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const std::int64_t i = first + k * kThreads;
    if (i < words) word[k] = codes[i];
  }
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const std::int64_t i = first + k * kThreads;
    if (i < words) scale[k] = scale_of(scales, i / 8);
  }
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const std::int64_t i = first + k * kThreads;
    if (i >= words) continue;
    Eight e;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned byte = word[k] >> (8 * pair) & 255U;
      e.v[2 * pair] = levels[byte >> 4] * scale[k];
      e.v[2 * pair + 1] = levels[byte & 15U] * scale[k];
    }
    store8(out + i * 8, e);
  }
}

}  // namespace

void nf4_dequantize(Type type, const std::uint8_t* codes, const Nf4Scales& scales, void* out,
                    std::int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  const std::int64_t words = n / 8;
  const auto grid = static_cast<unsigned>((words + kThreads * kWords - 1) / (kThreads * kWords));
  with_type(type, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    dequantize_kernel<T><<<grid, kThreads, 0, stream>>>(reinterpret_cast<const unsigned*>(codes),
                                                        scales, words, static_cast<T*>(out));
    check_launch("nf4_dequantize");
  });
}

}  // namespace mgpu::kernels
