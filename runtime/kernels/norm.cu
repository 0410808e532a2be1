#include <algorithm>

#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/vector.cuh"

namespace mgpu::kernels {
namespace {

constexpr int kBackwardBlocks = 264;  // two per multiprocessor of the largest GPUs
constexpr int kThreads = 256;

int threads_for(std::int64_t width) {
  const auto wanted = (width / 8 + 31) / 32 * 32;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 32, kThreads));
}

// One block per row. The second pass reads what the first one left in the caches.
template <class T, bool kAdd>
__global__ void forward(const T* __restrict__ x, const T* __restrict__ residual,
                        const T* __restrict__ w, T* __restrict__ sum, T* __restrict__ y,
                        float* __restrict__ rstd, std::int64_t width, float eps) {
  __shared__ float shared[32];
  const std::int64_t row = blockIdx.x * width;
  float squares = 0;
  for (std::int64_t i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
    Eight e = load8(x + row + i);
    if (kAdd) {
      const Eight r = load8(residual + row + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) e.v[k] = rounded<T>(e.v[k] + r.v[k]);
      store8(sum + row + i, e);
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) squares += e.v[k] * e.v[k];
  }
  const float scale = rsqrtf(block_sum(squares, shared) / static_cast<float>(width) + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
  const T* from = kAdd ? sum : x;
  for (std::int64_t i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
    Eight e = load8(from + row + i);
    const Eight weight = load8(w + i);
#pragma unroll
    for (int k = 0; k < 8; ++k) e.v[k] = rounded<T>(e.v[k] * scale) * weight.v[k];
    store8(y + row + i, e);
  }
}

// Each block processes rows at a stride and accumulates its share of gw in registers, kChunks * 8
// columns per thread.
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    backward(const T* __restrict__ gy, const T* __restrict__ x, const T* __restrict__ w,
             const float* __restrict__ rstd, const T* __restrict__ residual, T* __restrict__ gx,
             float* __restrict__ partial, std::int64_t rows, std::int64_t width) {
  __shared__ float shared[32];
  float gw[kChunks][8] = {};
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t at = row * width;
    const float scale = rstd[row];
    float gn[kChunks][8];
    float unit[kChunks][8];
    float along = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const std::int64_t i = (static_cast<std::int64_t>(c) * blockDim.x + threadIdx.x) * 8;
      if (i >= width) continue;
      const Eight g = load8(gy + at + i);
      const Eight v = load8(x + at + i);
      const Eight weight = load8(w + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        unit[c][k] = v.v[k] * scale;
        gw[c][k] += g.v[k] * unit[c][k];
        gn[c][k] = g.v[k] * weight.v[k];
        along += gn[c][k] * unit[c][k];
      }
    }
    const float mean = block_sum(along, shared) / static_cast<float>(width);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const std::int64_t i = (static_cast<std::int64_t>(c) * blockDim.x + threadIdx.x) * 8;
      if (i >= width) continue;
      Eight out;
#pragma unroll
      for (int k = 0; k < 8; ++k) out.v[k] = scale * (gn[c][k] - unit[c][k] * mean);
      if (residual != nullptr) {
        const Eight r = load8(residual + at + i);
#pragma unroll
        for (int k = 0; k < 8; ++k) out.v[k] += r.v[k];
      }
      store8(gx + at + i, out);
    }
  }
  if (partial == nullptr) return;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const std::int64_t i = (static_cast<std::int64_t>(c) * blockDim.x + threadIdx.x) * 8;
    if (i >= width) continue;
    Eight out;
#pragma unroll
    for (int k = 0; k < 8; ++k) out.v[k] = gw[c][k];
    store8(partial + blockIdx.x * width + i, out);
  }
}

__global__ void add_columns(const float* __restrict__ partial, float* __restrict__ gw, int blocks,
                            std::int64_t width) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (int block = 0; block < blocks; ++block) sum += partial[block * width + column];
  gw[column] += sum;
}

}  // namespace

void rms_norm(Type type, const void* x, const void* residual, const void* w, void* sum, void* y,
              float* rstd, const NormShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  const auto blocks = static_cast<unsigned>(shape.rows);
  const int threads = threads_for(shape.width);
  const auto eps = static_cast<float>(shape.eps);
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const auto* in = static_cast<const T*>(x);
    const auto* add = static_cast<const T*>(residual);
    const auto* weight = static_cast<const T*>(w);
    auto* out = static_cast<T*>(y);
    if (residual != nullptr) {
      forward<T, true><<<blocks, threads, 0, stream>>>(in, add, weight, static_cast<T*>(sum), out,
                                                       rstd, shape.width, eps);
      check_launch("rms_norm");
    } else {
      forward<T, false><<<blocks, threads, 0, stream>>>(in, nullptr, weight, nullptr, out, rstd,
                                                        shape.width, eps);
      check_launch("rms_norm");
    }
  });
}

std::int64_t norm_scratch(std::int64_t width) {
  return kBackwardBlocks * width;
}

void rms_norm_backward(Type type, const void* gy, const void* x, const void* w, const float* rstd,
                       const void* residual, void* gx, float* gw, float* scratch,
                       const NormShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  const int blocks = static_cast<int>(std::min<std::int64_t>(shape.rows, kBackwardBlocks));
  const int threads = threads_for(shape.width);
  float* partial = gw != nullptr ? scratch : nullptr;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const auto launch = [&](auto kernel) {
      kernel<<<blocks, threads, 0, stream>>>(
          static_cast<const T*>(gy), static_cast<const T*>(x), static_cast<const T*>(w), rstd,
          static_cast<const T*>(residual), static_cast<T*>(gx), partial, shape.rows, shape.width);
      check_launch("rms_norm_backward");
    };
    const auto chunks = (shape.width + threads * 8 - 1) / (threads * 8);
    if (chunks <= 1) {
      launch(backward<T, 1>);
    } else if (chunks <= 2) {
      launch(backward<T, 2>);
    } else {
      launch(backward<T, 4>);
    }
  });
  if (gw != nullptr) {
    add_columns<<<static_cast<unsigned>((shape.width + 63) / 64), 64, 0, stream>>>(
        partial, gw, blocks, shape.width);
    check_launch("add_columns");
  }
}

}  // namespace mgpu::kernels
