#include <cfloat>
#include <type_traits>

#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/mma.cuh"
#include "runtime/kernels/paged_join.cuh"
#include "runtime/kernels/vector.cuh"

// Attention of one new token in 16 bits on tensor cores. A warp processes one page of 16 tokens at
// a time: the logits of 16 tokens x 8 query heads that share a key head are one matrix product,
// which reads the keys in their memory layout. The order of the dimensions in the product is
// arbitrary as long as both factors use the same one, so every lane loads 16 bytes at a time and
// nothing goes through shared memory.
namespace mgpu::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kPage = 16;
constexpr int kHeads = 8;  // heads of a product; unused ones are zeros
constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

// Transposes a matrix of 8 x 8 elements. Four lanes hold one row.
__device__ inline unsigned transposed(unsigned pair) {
  unsigned out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

template <class T>
__device__ inline unsigned pair_of(float low, float high) {
  if constexpr (std::is_same_v<T, f16>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
}

__device__ inline unsigned lows(unsigned a, unsigned b) {
  return __byte_perm(a, b, 0x5410);
}
__device__ inline unsigned highs(unsigned a, unsigned b) {
  return __byte_perm(a, b, 0x7632);
}

// Combines x over the lanes that hold the same column; they are multiples of 4 lanes apart.
template <class F>
__device__ inline float over_rows(float x, F f) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = f(x, __shfl_xor_sync(0xffffffffU, x, step));
  return x;
}

// The running attention state of a warp's share of a sequence.
template <int kDim>
struct Past {
  Accumulator values[kDim / 16];  // [16 dimensions x 8 heads] each
  float largest[2], total[2];     // of this lane's two heads; logits are in units of log 2

  __device__ void clear() {
#pragma unroll
    for (auto& part : values)
#pragma unroll
      for (float& x : part.v) x = 0;
    largest[0] = largest[1] = -FLT_MAX;
    total[0] = total[1] = 0;
  }

  // Turns logits into weights relative to the largest logit so far. If the largest has grown,
  // rescales the sums.
  __device__ void weigh(Accumulator& s) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float here =
          over_rows(fmaxf(s.v[h], s.v[h + 2]), [](float a, float b) { return fmaxf(a, b); });
      const float top = fmaxf(largest[h], here);
      const float shrink = exp2f(largest[h] - top);
      largest[h] = top;
      s.v[h] = exp2f(s.v[h] - top);
      s.v[h + 2] = exp2f(s.v[h + 2] - top);
      total[h] = total[h] * shrink + s.v[h] + s.v[h + 2];
#pragma unroll
      for (auto& part : values) {
        part.v[h] *= shrink;
        part.v[h + 2] *= shrink;
      }
    }
  }
};

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) mma_kernel(PagedAttention a, int heads) {
  constexpr int kChunks = kDim / 32;  // chunks of 16 bytes that a lane holds of a key
  constexpr int kParts = kDim / 64;   // chunks of 16 bytes that a lane holds of a value
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane / 4, column = lane % 4;
  const int kv_head = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const auto [begin, end] = share_of<kPage>(a.lengths[sequence], a.splits, blockIdx.x);
  const std::int32_t* pages = a.table + sequence * a.table_stride;
  const std::int64_t stride = static_cast<std::int64_t>(a.kv_heads) * kDim;
  const T* keys = static_cast<const T*>(a.keys) + kv_head * kDim + column * 8;
  const T* all_values = static_cast<const T*>(a.values) + kv_head * kDim + row * (kDim / 8);

  Pack q[kChunks];
  const T* query = static_cast<const T*>(a.q) + sequence * a.q_stride +
                   static_cast<std::int64_t>(kv_head * heads + row) * kDim + column * 8;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (row < heads) {
      q[c] = load_pack(query + c * 32);
    } else {
      q[c] = {};
    }
  }
  const float scale = a.scale * kLog2e;

  Past<kDim> past;
  past.clear();
  for (int first = begin + warp * kPage; first < end; first += kWarps * kPage) {
    const std::int64_t page = static_cast<std::int64_t>(pages[first / kPage]) * kPage;
    const T* key = keys + (page + row) * stride;
    const T* value = all_values + (page + 2 * column) * stride;
    Pack k[2][kChunks], v[4][kParts];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      k[0][c] = load_pack(key + c * 32);
      k[1][c] = load_pack(key + 8 * stride + c * 32);
    }
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        v[t][p] = load_pack(value + (t / 2 * 8 + t % 2) * stride + p * 8);

    Accumulator s{};  // [16 tokens x 8 heads]
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        multiply<T>(s, k[0][c].v[i], k[1][c].v[i], k[0][c].v[i + 1], k[1][c].v[i + 1], q[c].v[i],
                    q[c].v[i + 1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) s.v[i] = first + row + i / 2 * 8 < end ? s.v[i] * scale : -INFINITY;
    past.weigh(s);

    const unsigned weights0 = transposed(pair_of<T>(s.v[0], s.v[1]));
    const unsigned weights1 = transposed(pair_of<T>(s.v[2], s.v[3]));
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        multiply<T>(past.values[p * 4 + i], lows(v[0][p].v[i], v[1][p].v[i]),
                    highs(v[0][p].v[i], v[1][p].v[i]), lows(v[2][p].v[i], v[3][p].v[i]),
                    highs(v[2][p].v[i], v[3][p].v[i]), weights0, weights1);
  }

  __shared__ Joined<kWarps, kHeads, kDim> joined;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = over_rows(past.total[h], [](float x, float y) { return x + y; });
    if (row == 0) {
      joined.largest[warp][2 * column + h] = past.largest[h] * kLn2;
      joined.total[warp][2 * column + h] = total;
    }
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      const int d = row * (kDim / 8) + 2 * i;
      joined.value[warp][2 * column + h][d] = past.values[i].v[h];
      joined.value[warp][2 * column + h][d + 1] = past.values[i].v[h + 2];
    }
  }
  __syncthreads();
  joined.template write_result<T>(a, heads, sequence, kv_head, blockIdx.x);
}

template <class T, int kDim>
void launch(const PagedAttention& a, int heads, std::int64_t sequences, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.splits), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>(sequences));
  mma_kernel<T, kDim><<<grid, kThreads, 0, stream>>>(a, heads);
  check_launch("paged_attention");
  join_splits<T>(a, heads, kDim, sequences, stream);
}

}  // namespace

void paged_attention_16_bit(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                            std::int64_t sequences, cudaStream_t stream) {
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    if (head_dim == 128) {
      launch<T, 128>(a, heads_per_key, sequences, stream);
    } else {
      launch<T, 64>(a, heads_per_key, sequences, stream);
    }
  });
}

}  // namespace mgpu::kernels
