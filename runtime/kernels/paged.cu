#include <cfloat>

#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/paged_join.cuh"
#include "runtime/kernels/vector.cuh"

// Attention of one new token over paged keys and values, in fp32 without tensor cores. A block
// handles a range of one sequence's tokens for all query heads that share a key head. A group of
// adjacent lanes holds one token's key, eight elements per lane, and each group keeps its own sums
// until the end.
namespace mgpu::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kPage = 16;

__device__ inline float group_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffU, x, offset);
  return x;
}

// The sums of weights and of weighted values of kHeads query heads, relative to the largest logit.
template <int kHeads>
struct Sums {
  float largest[kHeads], total[kHeads], value[kHeads][8];

  __device__ void clear() {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      largest[h] = -FLT_MAX;
      total[h] = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) value[h][i] = 0;
    }
  }

  __device__ void take(int h, float logit, const Eight& v) {
    const float top = fmaxf(largest[h], logit);
    const float shrink = __expf(largest[h] - top);
    const float weight = __expf(logit - top);
    largest[h] = top;
    total[h] = total[h] * shrink + weight;
#pragma unroll
    for (int i = 0; i < 8; ++i) value[h][i] = value[h][i] * shrink + weight * v.v[i];
  }
};

template <class T, int kHeads, int kDim>
__global__ void __launch_bounds__(kThreads) part_kernel(PagedAttention a) {
  constexpr int kLanes = kDim / 8;
  constexpr int kGroups = kThreads / kLanes;
  __shared__ Joined<kGroups, kHeads, kDim> joined;
  const int kv_head = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const int group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const auto [begin, end] = share_of<kPage>(a.lengths[sequence], a.splits, blockIdx.x);
  const std::int32_t* pages = a.table + sequence * a.table_stride;
  const std::int64_t token_stride = static_cast<std::int64_t>(a.kv_heads) * kDim;
  const std::int64_t offset = static_cast<std::int64_t>(kv_head) * kDim + lane * 8;

  const T* q = static_cast<const T*>(a.q) + sequence * a.q_stride +
               static_cast<std::int64_t>(kv_head) * kHeads * kDim + lane * 8;
  Eight query[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) query[h] = load8(q + h * kDim);

  Sums<kHeads> sums;
  sums.clear();
  const int steps = (end - begin + kGroups - 1) / kGroups;  // the same for all lanes of a warp
  for (int step = 0; step < steps; ++step) {
    const int token = begin + step * kGroups + group;
    const bool there = token < end;
    const int at = there ? token : begin;
    const std::int64_t place =
        (static_cast<std::int64_t>(pages[at / kPage]) * kPage + at % kPage) * token_stride + offset;
    const Eight key = load8(static_cast<const T*>(a.keys) + place);
    const Eight value = load8(static_cast<const T*>(a.values) + place);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float dot = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) dot += query[h].v[i] * key.v[i];
      dot = group_sum(dot, kLanes) * a.scale;
      if (there) sums.take(h, dot, value);
    }
  }

#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (lane == 0) {
      joined.largest[group][h] = sums.largest[h];
      joined.total[group][h] = sums.total[h];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) joined.value[group][h][lane * 8 + i] = sums.value[h][i];
  }
  __syncthreads();
  joined.template write_result<T>(a, kHeads, sequence, kv_head, blockIdx.x);
}

template <class T, int kHeads, int kDim>
void launch(const PagedAttention& a, std::int64_t sequences, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.splits), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>(sequences));
  part_kernel<T, kHeads, kDim><<<grid, kThreads, 0, stream>>>(a);
  check_launch("paged_attention");
  join_splits<T>(a, kHeads, kDim, sequences, stream);
}

template <class T, int kDim>
bool launch_heads(const PagedAttention& a, int heads, std::int64_t sequences, cudaStream_t stream) {
  switch (heads) {
    case 1:
      return launch<T, 1, kDim>(a, sequences, stream), true;
    case 2:
      return launch<T, 2, kDim>(a, sequences, stream), true;
    case 3:
      return launch<T, 3, kDim>(a, sequences, stream), true;
    case 4:
      return launch<T, 4, kDim>(a, sequences, stream), true;
    case 5:
      return launch<T, 5, kDim>(a, sequences, stream), true;
    case 6:
      return launch<T, 6, kDim>(a, sequences, stream), true;
    case 7:
      return launch<T, 7, kDim>(a, sequences, stream), true;
    case 8:
      return launch<T, 8, kDim>(a, sequences, stream), true;
    default:
      return false;
  }
}

}  // namespace

bool paged_attention_supports(int heads_per_key, int head_dim) {
  return heads_per_key >= 1 && heads_per_key <= 8 && (head_dim == 64 || head_dim == 128);
}

void paged_attention(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                     std::int64_t sequences, cudaStream_t stream) {
  if (sequences == 0) return;
  if (type != Type::f32)
    return paged_attention_16_bit(type, a, heads_per_key, head_dim, sequences, stream);
  if (head_dim == 128) {
    launch_heads<float, 128>(a, heads_per_key, sequences, stream);
  } else {
    launch_heads<float, 64>(a, heads_per_key, sequences, stream);
  }
}

namespace {

constexpr int kCopyThreads = 128;

// One block per token; each thread copies 16 bytes at a time.
__global__ void __launch_bounds__(kCopyThreads) put_kernel(PagedCopy c) {
  const std::int64_t row = blockIdx.x, slot = c.slots[row];
  const uint4* from = c.keys_from + row * c.stride;
  for (int i = threadIdx.x; i < 2 * c.width; i += kCopyThreads) {
    uint4* to = i < c.width ? c.keys : c.values - c.width;
    to[slot * c.width + i] = from[i];
  }
}

}  // namespace

void put_in_pages(const PagedCopy& copy, std::int64_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  put_kernel<<<static_cast<unsigned>(rows), kCopyThreads, 0, stream>>>(copy);
  check_launch("put_in_pages");
}

}  // namespace mgpu::kernels
