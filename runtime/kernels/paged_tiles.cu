#include "runtime/kernels/early_launch.cuh"
#include "runtime/kernels/hopper.cuh"
#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/paged_join.cuh"
#include "runtime/kernels/paged_state.cuh"
#include "runtime/kernels/tile_map.cuh"

// paged_mma.cu from compute capability 9.0 on: the copy engine brings the pages, so that each warp
// always has some of its own on their way, as tiles of 16 tokens x 64 dimensions with the swizzle
// of 128 bytes.
namespace mgpu::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStages = 3;  // pages of a warp; measured on an H200 beside 2 and 4
constexpr int kTileBytes = kPageTokens * 128;

template <int kDim>
constexpr int kPageBytes = 2 * kDim / 64 * kTileBytes;  // keys, then values

template <int kDim>
constexpr int kSharedBytes = kWarps * kStages * kPageBytes<kDim> + 1024;

// 16 bytes of a tile. Only the code for compute capability 9.0 and newer uses it.
[[maybe_unused]] __device__ inline Pack load_chunk(unsigned tile, int token, int chunk) {
  Pack pack;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(pack.v[0]), "=r"(pack.v[1]), "=r"(pack.v[2]), "=r"(pack.v[3])
               : "r"(tile + static_cast<unsigned>(token * 128 + ((chunk ^ (token & 7)) << 4)))
               : "memory");
  return pack;
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads)
    tiles_kernel(const __grid_constant__ CUtensorMap keys,
                 const __grid_constant__ CUtensorMap values, PagedAttention a, int heads) {
#if __CUDA_ARCH__ >= 900
  using Result = Joined<kWarps, kHeadsOfProduct, kDim>;
  static_assert(sizeof(Result) <= kSharedBytes<kDim> - 1024);
  extern __shared__ unsigned char unaligned[];
  __shared__ alignas(8) std::uint64_t barriers[kWarps][kStages];
  const unsigned start = hopper::shared_address(unaligned);
  const unsigned padding = (1024U - start % 1024U) % 1024U;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane / 4, column = lane % 4;
  const unsigned mine = start + padding + static_cast<unsigned>(warp * kStages * kPageBytes<kDim>);
  const unsigned full = hopper::shared_address(barriers[warp]);
  if (lane == 0) {
    for (int i = 0; i < kStages; ++i) hopper::init_barrier(full + 8 * i, 1);
    hopper::publish_barriers();
    hopper::prefetch(keys);
    hopper::prefetch(values);
  }
  __syncwarp();

  const int kv_head = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const int length = a.lengths[sequence];
  const auto [begin, end] = share_of<kPageTokens>(length, a.splits, blockIdx.x);
  // The pages of this warp: every kWarps-th. Their numbers are loaded 32 at a time.
  const int first = begin + warp * kPageTokens;
  const int step = kWarps * kPageTokens;
  const int count = first < end ? (end - first + step - 1) / step : 0;
  const std::int32_t* table = a.table + sequence * a.table_stride + first / kPageTokens;
  std::int32_t numbers = 0;
  const auto copy_page = [&](int i) {
    if (i % 32 == 0) numbers = i + lane < count ? table[(i + lane) * kWarps] : 0;
    const int token = __shfl_sync(0xffffffffU, numbers, i % 32) * kPageTokens;
    if (lane == 0) {
      const unsigned to = mine + static_cast<unsigned>(i % kStages * kPageBytes<kDim>);
      const unsigned barrier = full + 8 * static_cast<unsigned>(i % kStages);
      hopper::expect_bytes(barrier, kPageBytes<kDim>);
#pragma unroll
      for (int p = 0; p < kDim / 64; ++p) {
        const int column_begin = kv_head * kDim + p * 64;
        hopper::copy_tile(to + p * kTileBytes, keys, column_begin, token, barrier);
        hopper::copy_tile(to + (kDim / 64 + p) * kTileBytes, values, column_begin, token, barrier);
      }
    }
  };
  // The kernel before this one writes the newest token, and no other.
  const int known = max((length - 1) / kPageTokens - first / kPageTokens + kWarps - 1, 0) / kWarps;
  int copied = 0;
  for (; copied < min(kStages, min(count, known)); ++copied) copy_page(copied);
  begin_after_earlier_kernels();
  for (; copied < min(kStages, count); ++copied) copy_page(copied);

  Queries<T, kDim, true> q;
  q.load(a, sequence, kv_head, heads);
  const float scale = a.scale * kLog2e;
  Past<kDim> past;
  past.clear();
  for (int i = 0; i < count; ++i) {
    hopper::wait(full + 8 * static_cast<unsigned>(i % kStages),
                 static_cast<unsigned>(i / kStages) & 1U);
    const unsigned page = mine + static_cast<unsigned>(i % kStages * kPageBytes<kDim>);
    add_page(
        past, q,
        [&](int half, int c) {
          return load_chunk(page + static_cast<unsigned>(c / 2 * kTileBytes), row + 8 * half,
                            2 * column + c % 2);
        },
        [&](int t, int p) {
          return load_chunk(page + static_cast<unsigned>((kDim / 64 + p) * kTileBytes),
                            2 * column + t / 2 * 8 + t % 2, row);
        },
        end - first - i * step, scale);
    __syncwarp();  // all lanes have read the page: another may take its place
    if (i + kStages < count) copy_page(i + kStages);
  }

  __syncthreads();  // the results take the place of the pages
  auto& joined = *reinterpret_cast<Result*>(unaligned + padding);
  store_part(joined, past);
  __syncthreads();
  joined.template write_result<T>(a, heads, sequence, kv_head, blockIdx.x);
#endif
}

template <class T, int kDim>
void launch(Type type, const PagedAttention& a, int heads, std::int64_t sequences,
            cudaStream_t stream) {
  const auto kernel = tiles_kernel<T, kDim>;
  const auto width = static_cast<std::int64_t>(a.kv_heads) * kDim;
  const auto keys = tile_map(type, a.keys, a.tokens, width, kPageTokens);
  const auto values = tile_map(type, a.values, a.tokens, width, kPageTokens);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<kDim>);
  launch_early(kernel,
               {.blocks = dim3(static_cast<unsigned>(a.splits), static_cast<unsigned>(a.kv_heads),
                               static_cast<unsigned>(sequences)),
                .threads = dim3(kThreads),
                .shared_bytes = kSharedBytes<kDim>},
               stream, keys, values, a, heads);
  check_launch("paged_attention of tiles");
  join_splits<T>(a, heads, kDim, sequences, stream);
}

}  // namespace

void paged_attention_of_tiles(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                              std::int64_t sequences, cudaStream_t stream) {
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    if (head_dim == 128) {
      launch<T, 128>(type, a, heads_per_key, sequences, stream);
    } else {
      launch<T, 64>(type, a, heads_per_key, sequences, stream);
    }
  });
}

}  // namespace mgpu::kernels
