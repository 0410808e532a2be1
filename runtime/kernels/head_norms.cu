#include <algorithm>

#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/vector.cuh"

namespace mgpu::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBackwardBlocks = 528;

// A group of head_dim / 8 lanes has a head, eight elements each. The groups of a block process
// `groups` heads at a time.
struct Place {
  int lanes, lane, group, groups;
  bool first_half;
};

__device__ Place place_of(const HeadNorms& s) {
  const int lanes = static_cast<int>(s.head_dim / 8);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  return {lanes, lane, static_cast<int>(threadIdx.x) / lanes, kThreads / lanes, lane < lanes / 2};
}

__device__ float group_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffU, x, offset);
  return x;
}

// Rotates the elements of a head; element i's partner is in another lane. `sign` is -1 backwards.
template <class T>
__device__ Eight rotated(const Eight& own, const Place& p, const float* cos, const float* sin,
                         float sign) {
  const int at = p.lane % (p.lanes / 2) * 8;
  const Eight c = load8(cos + at);
  const Eight d = load8(sin + at);
  Eight out;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float other = __shfl_xor_sync(0xffffffffU, own.v[k], p.lanes / 2);
    const float sine = (p.first_half ? -sign : sign) * rounded<T>(d.v[k]);
    out.v[k] = own.v[k] * rounded<T>(c.v[k]) + other * sine;
  }
  return out;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_heads(T* __restrict__ qkv, const T* __restrict__ q_weight,
                  const T* __restrict__ k_weight, const Rotation rotation, T* __restrict__ before,
                  float* __restrict__ rstd, const HeadNorms s) {
  const Place p = place_of(s);
  const std::int64_t wanted = static_cast<std::int64_t>(blockIdx.x) * p.groups + p.group;
  const std::int64_t all = s.heads + s.kv_heads;
  const bool active = wanted < s.rows * all;
  const std::int64_t item = active ? wanted : 0;  // all lanes take part in the exchanges
  const std::int64_t row = item / all;
  const std::int64_t head = item % all;
  T* at = qkv + row * s.stride + head * s.head_dim + p.lane * 8;
  const Eight x = load8(at);
  float squares = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) squares += x.v[k] * x.v[k];
  const float scale = rsqrtf(group_sum(squares, p.lanes) / static_cast<float>(s.head_dim) + s.eps);
  const Eight weight = load8((head < s.heads ? q_weight : k_weight) + p.lane * 8);
  Eight y;
#pragma unroll
  for (int k = 0; k < 8; ++k) y.v[k] = rounded<T>(rounded<T>(x.v[k] * scale) * weight.v[k]);
  const std::int64_t table = rotation.positions[row] * (s.head_dim / 2);
  y = rotated<T>(y, p, rotation.cos + table, rotation.sin + table, 1);
  if (!active) return;
  store8(at, y);
  if (before == nullptr) return;
  store8(before + item * s.head_dim + p.lane * 8, x);
  if (p.lane == 0) rstd[item] = scale;
}

// Each group keeps its share of both weights' gradients in registers.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_heads(T* __restrict__ g_qkv, const T* __restrict__ q_weight,
                   const T* __restrict__ k_weight, const Rotation rotation,
                   const T* __restrict__ before, const float* __restrict__ rstd,
                   float* __restrict__ partial, const HeadNorms s) {
  const Place p = place_of(s);
  const std::int64_t all = s.heads + s.kv_heads;
  const std::int64_t items = s.rows * all;
  float gw[2][8] = {};
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * p.groups; begin < items;
       begin += static_cast<std::int64_t>(gridDim.x) * p.groups) {
    const bool active = begin + p.group < items;
    const std::int64_t item = active ? begin + p.group : 0;
    const std::int64_t row = item / all;
    const std::int64_t head = item % all;
    const bool is_q = head < s.heads;
    T* at = g_qkv + row * s.stride + head * s.head_dim + p.lane * 8;
    const std::int64_t table = rotation.positions[row] * (s.head_dim / 2);
    const Eight g = rotated<T>(load8(at), p, rotation.cos + table, rotation.sin + table, -1);
    const Eight x = load8(before + item * s.head_dim + p.lane * 8);
    const Eight weight = load8((is_q ? q_weight : k_weight) + p.lane * 8);
    const float scale = rstd[item];
    Eight gn;
    Eight unit;
    float along = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float gradient = rounded<T>(g.v[k]);
      unit.v[k] = x.v[k] * scale;
      const float share = active ? gradient * unit.v[k] : 0.0F;
      gw[0][k] += is_q ? share : 0.0F;
      gw[1][k] += is_q ? 0.0F : share;
      gn.v[k] = gradient * weight.v[k];
      along += gn.v[k] * unit.v[k];
    }
    const float mean = group_sum(along, p.lanes) / static_cast<float>(s.head_dim);
    if (!active) continue;
#pragma unroll
    for (int k = 0; k < 8; ++k) gn.v[k] = scale * (gn.v[k] - unit.v[k] * mean);
    store8(at, gn);
  }
  if (partial == nullptr) return;
  __shared__ float shared[kThreads * 8];
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      shared[p.group * s.head_dim + p.lane * 8 + k] = which == 0 ? gw[0][k] : gw[1][k];
    __syncthreads();
    for (std::int64_t column = threadIdx.x; column < s.head_dim; column += kThreads) {
      float sum = 0;
      for (int group = 0; group < p.groups; ++group) sum += shared[group * s.head_dim + column];
      partial[(blockIdx.x * 2 + which) * s.head_dim + column] = sum;
    }
  }
}

__global__ void add_heads(const float* __restrict__ partial, float* __restrict__ gq,
                          float* __restrict__ gk, int blocks, std::int64_t head_dim) {
  const std::int64_t column = threadIdx.x;
  const std::int64_t which = blockIdx.x;
  float* to = which == 0 ? gq : gk;
  if (to == nullptr) return;
  float sum = 0;
  for (int block = 0; block < blocks; ++block)
    sum += partial[(block * 2 + which) * head_dim + column];
  to[column] += sum;
}

std::int64_t blocks_of(const HeadNorms& s) {
  const std::int64_t groups = kThreads / (s.head_dim / 8);
  return (s.rows * (s.heads + s.kv_heads) + groups - 1) / groups;
}

}  // namespace

bool can_norm_heads(std::int64_t head_dim) {
  return head_dim >= 16 && head_dim <= 256 && (head_dim & (head_dim - 1)) == 0;
}

void norm_heads(Type type, void* qkv, const HeadWeights& weights, const Rotation& rotation,
                void* before, float* rstd, const HeadNorms& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    forward_heads<T><<<static_cast<unsigned>(blocks_of(shape)), kThreads, 0, stream>>>(
        static_cast<T*>(qkv), static_cast<const T*>(weights.q), static_cast<const T*>(weights.k),
        rotation, static_cast<T*>(before), rstd, shape);
    check_launch("norm_heads");
  });
}

std::int64_t head_norms_scratch(std::int64_t head_dim) {
  return std::int64_t{2} * kBackwardBlocks * head_dim;
}

void norm_heads_backward(Type type, void* g_qkv, const HeadWeights& weights,
                         const Rotation& rotation, const void* before, const float* rstd, float* gq,
                         float* gk, float* scratch, const HeadNorms& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  const auto blocks = static_cast<int>(std::min<std::int64_t>(blocks_of(shape), kBackwardBlocks));
  const bool weight_gradients = gq != nullptr || gk != nullptr;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    backward_heads<T><<<blocks, kThreads, 0, stream>>>(
        static_cast<T*>(g_qkv), static_cast<const T*>(weights.q), static_cast<const T*>(weights.k),
        rotation, static_cast<const T*>(before), rstd, weight_gradients ? scratch : nullptr, shape);
    check_launch("norm_heads_backward");
  });
  if (!weight_gradients) return;
  add_heads<<<2, static_cast<unsigned>(shape.head_dim), 0, stream>>>(scratch, gq, gk, blocks,
                                                                     shape.head_dim);
  check_launch("add_heads");
}

}  // namespace mgpu::kernels
