#include "runtime/kernels/fp8.cuh"
#include "runtime/kernels/launch_check.cuh"

namespace mgpu::kernels {
namespace {

using namespace fp8;

constexpr int kRowsOfThread = 2;

// Where a thread of a thread block with 128 columns is in a matrix.
struct Place {
  std::int64_t block, column, first;  // block of columns, first column and row of the thread
  int lane;
};

__device__ Place place(int column_blocks) {
  Place p;
  p.lane = threadIdx.x % kLanes;
  p.block = blockIdx.x % column_blocks;
  p.column = p.block * kBlock + p.lane * 8;
  p.first = static_cast<std::int64_t>(blockIdx.x / column_blocks) * kRowsPerPass * kRowsOfThread +
            threadIdx.x / kLanes;
  return p;
}

template <class T>
__device__ void round_all(Eight& e) {
#pragma unroll
  for (float& v : e.v) v = rounded<T>(v);
}

// Quantizes 128 elements of a row, 8 of each of 16 threads, all of which must call it.
__device__ void quantize(const Eight& e, const Fp8RowsOut& out, std::int64_t row,
                         std::int64_t column, const Fp8RowsShape& s, bool first_lane) {
  const auto scale = scale_of(largest_among<kLanes>(largest_of(e)));
  if (row >= s.padded) return;
  store_codes(out.codes + row * s.columns + column, e, scale.inverse);
  if (first_lane) out.scales[column / kBlock * s.padded + row] = scale.scale;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const T* __restrict__ gate_up, T* __restrict__ y, Fp8RowsOut out, Fp8RowsShape s,
                  int column_blocks) {
  const auto p = place(column_blocks);
  Eight gate[kRowsOfThread], up[kRowsOfThread];
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const std::int64_t row = p.first + i * kRowsPerPass;
    const T* at = gate_up + row * 2 * s.columns + p.column;
    gate[i] = row < s.rows ? load8(at) : Eight{};
    up[i] = row < s.rows ? load8(at + s.columns) : Eight{};
  }
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const std::int64_t row = p.first + i * kRowsPerPass;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float silu = gate[i].v[k] / (1.0F + __expf(-gate[i].v[k]));
      up[i].v[k] *= rounded<T>(silu);
    }
    round_all<T>(up[i]);
    if (row < s.rows) store8(y + row * s.columns + p.column, up[i]);
    quantize(up[i], out, row, p.column, s, p.lane == 0);
  }
}

// Each thread overwrites the elements of g that it has read by swiglu's output. Half of the columns
// of the shape belong to the gate.
template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* __restrict__ g, const T* __restrict__ gate_up,
                           T* __restrict__ gradient, Fp8RowsOut out, Fp8RowsShape s,
                           int column_blocks) {
  const auto p = place(column_blocks);
  const std::int64_t width = s.columns / 2;
  Eight gate[kRowsOfThread], up[kRowsOfThread], grad[kRowsOfThread];
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const std::int64_t row = p.first + i * kRowsPerPass;
    const T* at = gate_up + row * s.columns + p.column;
    gate[i] = row < s.rows ? load8(at) : Eight{};
    up[i] = row < s.rows ? load8(at + width) : Eight{};
    grad[i] = row < s.rows ? load8(g + row * width + p.column) : Eight{};
  }
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const std::int64_t row = p.first + i * kRowsPerPass;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float &a = gate[i].v[k], &b = up[i].v[k], &c = grad[i].v[k];
      const float sigmoid = 1.0F / (1.0F + __expf(-a));
      const float silu = a * sigmoid;
      const float d_silu = sigmoid * (1.0F + a * (1.0F - sigmoid));
      const float act = b * rounded<T>(silu);
      a = c * b * d_silu;
      b = c * silu;
      c = act;
    }
    round_all<T>(gate[i]);
    round_all<T>(up[i]);
    if (row < s.rows) {
      store8(gradient + row * s.columns + p.column, gate[i]);
      store8(gradient + row * s.columns + p.column + width, up[i]);
      store8(g + row * width + p.column, grad[i]);
    }
    quantize(gate[i], out, row, p.column, s, p.lane == 0);
    quantize(up[i], out, row, p.column + width, s, p.lane == 0);
  }
}

unsigned grid_of(const Fp8RowsShape& s, int column_blocks) {
  constexpr int kRows = kRowsPerPass * kRowsOfThread;
  return blocks_for((s.padded + kRows - 1) / kRows * column_blocks);
}

}  // namespace

void swiglu_in_fp8(Type type, const void* gate_up, void* y, const Fp8RowsOut& out,
                   const Fp8RowsShape& s, cudaStream_t stream) {
  if (s.padded == 0 || s.columns == 0) return;
  const auto column_blocks = static_cast<int>(s.columns / kBlock);
  with_type(type, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    swiglu_kernel<T><<<grid_of(s, column_blocks), kThreads, 0, stream>>>(
        static_cast<const T*>(gate_up), static_cast<T*>(y), out, s, column_blocks);
    check_launch("swiglu_in_fp8");
  });
}

void swiglu_backward_in_fp8(Type type, void* g, const void* gate_up, void* gradient,
                            const Fp8RowsOut& out, const Fp8RowsShape& s, cudaStream_t stream) {
  if (s.padded == 0 || s.columns == 0) return;
  const auto column_blocks = static_cast<int>(s.columns / 2 / kBlock);
  with_type(type, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    swiglu_backward_kernel<T><<<grid_of(s, column_blocks), kThreads, 0, stream>>>(
        static_cast<T*>(g), static_cast<const T*>(gate_up), static_cast<T*>(gradient), out, s,
        column_blocks);
    check_launch("swiglu_backward_in_fp8");
  });
}

}  // namespace mgpu::kernels
