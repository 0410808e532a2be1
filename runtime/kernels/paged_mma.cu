#include <type_traits>

#include "runtime/kernels/early_launch.cuh"
#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/paged_join.cuh"
#include "runtime/kernels/paged_state.cuh"
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

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) mma_kernel(PagedAttention a, int heads) {
  constexpr int kChunks = kDim / 32;  // chunks of 16 bytes that a lane holds of a key
  constexpr int kParts = kDim / 64;   // chunks of 16 bytes that a lane holds of a value
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane / 4, column = lane % 4;
  const int kv_head = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const auto [begin, end] = share_of<kPageTokens>(a.lengths[sequence], a.splits, blockIdx.x);
  const std::int32_t* pages = a.table + sequence * a.table_stride;
  const std::int64_t stride = static_cast<std::int64_t>(a.kv_heads) * kDim;
  const T* keys = static_cast<const T*>(a.keys) + kv_head * kDim + column * 8;
  const T* all_values = static_cast<const T*>(a.values) + kv_head * kDim + row * 8;

  Queries<T, kDim> q;
  q.load(a, sequence, kv_head, heads);
  const float scale = a.scale * kLog2e;
  Past<kDim> past;
  past.clear();
  for (int first = begin + warp * kPageTokens; first < end; first += kWarps * kPageTokens) {
    const std::int64_t page = static_cast<std::int64_t>(pages[first / kPageTokens]) * kPageTokens;
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
        v[t][p] = load_pack(value + (t / 2 * 8 + t % 2) * stride + p * 64);
    add_page(
        past, q, [&](int half, int c) { return k[half][c]; }, [&](int t, int p) { return v[t][p]; },
        end - first, scale);
  }

  __shared__ Joined<kWarps, kHeadsOfProduct, kDim> joined;
  store_part(joined, past);
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
  if (launches_early())
    return paged_attention_of_tiles(type, a, heads_per_key, head_dim, sequences, stream);
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
