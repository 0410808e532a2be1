#include "runtime/kernels/early_launch.cuh"
#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/philox.cuh"
#include "runtime/kernels/vector.cuh"

namespace mgpu::kernels {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

// Each thread rotates eight pairs: eight elements of a head's first half and their partners in the
// second half.
template <class T>
__global__ void rotate_kernel(T* __restrict__ x, const float* __restrict__ cos,
                              const float* __restrict__ sin,
                              const std::int32_t* __restrict__ positions, float sign, RotateShape s,
                              std::int64_t items) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= items) return;
  const std::int64_t half = s.head_dim / 2;
  const std::int64_t groups = half / 8;
  const std::int64_t in_head = item % groups * 8;
  const std::int64_t head = item / groups % s.heads;
  const std::int64_t row = item / (groups * s.heads);
  T* at = x + row * s.stride + head * s.head_dim + in_head;
  const std::int64_t table = positions[row] * half + in_head;
  const Eight a = load8(at);
  const Eight b = load8(at + half);
  const Eight c = load8(cos + table);
  const Eight d = load8(sin + table);
  Eight first;
  Eight second;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float cosine = rounded<T>(c.v[k]);
    const float sine = sign * rounded<T>(d.v[k]);
    first.v[k] = a.v[k] * cosine - b.v[k] * sine;
    second.v[k] = b.v[k] * cosine + a.v[k] * sine;
  }
  store8(at, first);
  store8(at + half, second);
}

template <class T>
__global__ void swiglu_kernel(const T* gate_up, T* __restrict__ out, std::int64_t width,
                              std::int64_t items) {
  begin_after_earlier_kernels();
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= items) return;
  const std::int64_t row = item * 8 / width;
  const std::int64_t column = item * 8 % width;
  const T* at = gate_up + row * 2 * width + column;
  const Eight gate = load8(at);
  Eight up = load8(at + width);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float silu = gate.v[k] / (1.0F + __expf(-gate.v[k]));
    up.v[k] *= rounded<T>(silu);
  }
  store8(out + row * width + column, up);
}

// Each thread overwrites the elements of g that it has read by swiglu's output.
template <class T>
__global__ void swiglu_backward_kernel(T* __restrict__ g, const T* __restrict__ gate_up,
                                       T* __restrict__ out, std::int64_t width,
                                       std::int64_t items) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= items) return;
  const std::int64_t row = item * 8 / width;
  const std::int64_t column = item * 8 % width;
  const std::int64_t at = row * 2 * width + column;
  Eight gate = load8(gate_up + at);
  Eight up = load8(gate_up + at + width);
  Eight grad = load8(g + row * width + column);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float s = 1.0F / (1.0F + __expf(-gate.v[k]));
    const float silu = gate.v[k] * s;
    const float d_silu = s * (1.0F + gate.v[k] * (1.0F - s));
    const float act = up.v[k] * rounded<T>(silu);
    gate.v[k] = grad.v[k] * up.v[k] * d_silu;
    up.v[k] = grad.v[k] * silu;
    grad.v[k] = act;
  }
  store8(out + at, gate);
  store8(out + at + width, up);
  store8(g + row * width + column, grad);
}

// Each thread drops out eight elements. No pointer is __restrict__, since x may be out.
template <class T>
__global__ void dropout_kernel(const T* x, T* out, Dropout dropout, std::int64_t items) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= items) return;
  Eight e = load8(x + item * 8);
  const uint4 bits = philox(dropout.seed, static_cast<std::uint64_t>(item));
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
  const float scale = 65536.0F / static_cast<float>(65536U - dropout.threshold);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const unsigned number = k % 2 == 0 ? words[k / 2] & 0xFFFFU : words[k / 2] >> 16;
    e.v[k] = number >= dropout.threshold ? e.v[k] * scale : 0.0F;
  }
  store8(out + item * 8, e);
}

// A block copies one row. The rows come over the bus, so that many loads should be on their way.
__global__ void copy_rows_kernel(const uint4* __restrict__ table,
                                 const std::int32_t* __restrict__ rows, uint4* __restrict__ out,
                                 std::int64_t units) {
  const uint4* from = table + rows[blockIdx.x] * units;
  uint4* to = out + blockIdx.x * units;
  for (std::int64_t i = threadIdx.x; i < units; i += kThreads) to[i] = from[i];
}

}  // namespace

void copy_rows(const void* table, const std::int32_t* rows, void* out, std::int64_t count,
               std::int64_t row_bytes, cudaStream_t stream) {
  if (count == 0) return;
  copy_rows_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(
      static_cast<const uint4*>(table), rows, static_cast<uint4*>(out), row_bytes / 16);
  check_launch("copy_rows");
}

void rotate(Type type, void* x, const float* cos, const float* sin, const std::int32_t* positions,
            bool back, const RotateShape& shape, cudaStream_t stream) {
  const std::int64_t items = shape.rows * shape.heads * (shape.head_dim / 16);
  if (items == 0) return;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    rotate_kernel<T><<<blocks_for(items), kThreads, 0, stream>>>(
        static_cast<T*>(x), cos, sin, positions, back ? -1.0F : 1.0F, shape, items);
    check_launch("rotate");
  });
}

void swiglu(Type type, const void* gate_up, void* out, std::int64_t rows, std::int64_t width,
            cudaStream_t stream) {
  const std::int64_t items = rows * width / 8;
  if (items == 0) return;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch_early(swiglu_kernel<T>, {.blocks = dim3(blocks_for(items)), .threads = dim3(kThreads)},
                 stream, static_cast<const T*>(gate_up), static_cast<T*>(out), width, items);
    check_launch("swiglu");
  });
}

void swiglu_backward(Type type, void* g, const void* gate_up, void* out, std::int64_t rows,
                     std::int64_t width, cudaStream_t stream) {
  const std::int64_t items = rows * width / 8;
  if (items == 0) return;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    swiglu_backward_kernel<T><<<blocks_for(items), kThreads, 0, stream>>>(
        static_cast<T*>(g), static_cast<const T*>(gate_up), static_cast<T*>(out), width, items);
    check_launch("swiglu_backward");
  });
}

void dropout(Type type, const void* x, void* out, std::int64_t elements, const Dropout& dropout,
             cudaStream_t stream) {
  const std::int64_t items = elements / 8;
  if (items == 0) return;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    dropout_kernel<T><<<blocks_for(items), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<T*>(out), dropout, items);
    check_launch("dropout");
  });
}

}  // namespace mgpu::kernels
