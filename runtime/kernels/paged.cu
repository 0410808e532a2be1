#include <cfloat>

#include "runtime/kernels/vector.cuh"

// One new token's attention over keys and values in pages. A block takes some of the past of one
// sequence for all query heads that share a key head; lanes side by side hold one token's key,
// eight elements each, and each group of lanes keeps sums of its own until the end.
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

// Sums of weights and of weighted values of kHeads query heads, relative to the largest logit.
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

// What the groups of a block have, in shared memory, one after the other.
template <int kHeads, int kDim>
struct Shared {
  static constexpr int kGroups = kThreads / (kDim / 8);
  float largest[kGroups][kHeads], total[kGroups][kHeads];
  float value[kGroups][kHeads][kDim];
};

template <class T, int kHeads, int kDim>
__global__ void __launch_bounds__(kThreads) part_kernel(PagedAttention a) {
  constexpr int kLanes = kDim / 8;
  constexpr int kGroups = kThreads / kLanes;
  __shared__ Shared<kHeads, kDim> shared;
  const int split = blockIdx.x, kv_head = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const int group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int length = a.lengths[sequence];
  const int share = ((length + a.splits - 1) / a.splits + kPage - 1) / kPage * kPage;
  const int begin = split * share, end = min(length, begin + share);
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
      shared.largest[group][h] = sums.largest[h];
      shared.total[group][h] = sums.total[h];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) shared.value[group][h][lane * 8 + i] = sums.value[h][i];
  }
  __syncthreads();
  for (int item = threadIdx.x; item < kHeads * kDim; item += kThreads) {
    const int h = item / kDim, d = item % kDim;
    float top = -FLT_MAX;
    for (int g = 0; g < kGroups; ++g) top = fmaxf(top, shared.largest[g][h]);
    float total = 0, value = 0;
    for (int g = 0; g < kGroups; ++g) {
      const float weight = __expf(shared.largest[g][h] - top);
      total += shared.total[g][h] * weight;
      value += shared.value[g][h][d] * weight;
    }
    const std::int64_t head = static_cast<std::int64_t>(kv_head) * kHeads + h;
    if (a.splits == 1) {
      T* out = static_cast<T*>(a.out) + (sequence * a.kv_heads * kHeads + head) * kDim;
      out[d] = from_float<T>(value / total);
    } else {
      const std::int64_t row = (sequence * a.kv_heads * kHeads + head) * a.splits + split;
      a.part_values[row * kDim + d] = value;
      if (d == 0) {
        a.part_largest[row] = top;
        a.part_totals[row] = total;
      }
    }
  }
}

// A block a row: puts the parts of one query head together.
template <class T>
__global__ void join_kernel(PagedAttention a, int head_dim) {
  const std::int64_t row = blockIdx.x;
  float top = -FLT_MAX;
  for (int s = 0; s < a.splits; ++s) top = fmaxf(top, a.part_largest[row * a.splits + s]);
  for (int d = threadIdx.x; d < head_dim; d += blockDim.x) {
    float total = 0, value = 0;
    for (int s = 0; s < a.splits; ++s) {
      const std::int64_t part = row * a.splits + s;
      const float weight = __expf(a.part_largest[part] - top);
      total += a.part_totals[part] * weight;
      value += a.part_values[part * head_dim + d] * weight;
    }
    static_cast<T*>(a.out)[row * head_dim + d] = from_float<T>(value / total);
  }
}

template <class T, int kHeads, int kDim>
void launch(const PagedAttention& a, std::int64_t sequences, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.splits), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>(sequences));
  part_kernel<T, kHeads, kDim><<<grid, kThreads, 0, stream>>>(a);
  if (a.splits > 1)
    join_kernel<T>
        <<<static_cast<unsigned>(sequences * a.kv_heads * kHeads), kDim, 0, stream>>>(a, kDim);
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

bool paged_attention_knows(int heads_per_key, int head_dim) {
  return heads_per_key >= 1 && heads_per_key <= 8 && (head_dim == 64 || head_dim == 128);
}

void paged_attention(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                     std::int64_t sequences, cudaStream_t stream) {
  if (sequences == 0) return;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    if (head_dim == 128) {
      launch_heads<T, 128>(a, heads_per_key, sequences, stream);
    } else {
      launch_heads<T, 64>(a, heads_per_key, sequences, stream);
    }
  });
}

}  // namespace mgpu::kernels
