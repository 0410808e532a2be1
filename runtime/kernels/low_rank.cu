#include <algorithm>

#include "runtime/kernels/early_launch.cuh"
#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/mma.cuh"
#include "runtime/kernels/vector.cuh"

// The parts of LoRA adapters for few rows, in 16 bits. Their products are tiny: what they cost is
// kernels that wait for memory. So `low b^T` is computed where y is used, and a warp holds 16 rows
// x 32 outputs of y: lane l has the rows l / 4 and l / 4 + 8, and the outputs 8 (l % 4) to
// 8 (l % 4) + 7, which it loads and stores 16 bytes at a time.
namespace mgpu::kernels {
namespace {

constexpr int kTileRows = 16;
constexpr int kSpan = 32;

struct Lane {
  int row = static_cast<int>(threadIdx.x) % 32 / 4;
  int column = static_cast<int>(threadIdx.x) % 4;
};

// The rows and outputs of one lane, as they are in memory: they become fp32 after the loads of
// everything else have begun.
struct LanePatch {
  Pack rows[2];
};

// `at` is the place of the lane's first row and output.
template <class T>
__device__ inline LanePatch load_patch(const T* at, std::int64_t stride, std::int64_t row,
                                       std::int64_t rows) {
  LanePatch patch{};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (row + 8 * i < rows) patch.rows[i] = load_pack(at + 8 * i * stride);
  return patch;
}

// The term for 32 outputs.
template <class T>
struct SpanTerm {
  const T* b = nullptr;  // at the first of the outputs
  std::int64_t column = 0;
  int rank = 0;  // 0: there is none
};

template <class T>
__device__ inline SpanTerm<T> term_at(const LowRank& added, std::int64_t output) {
  SpanTerm<T> term;
#pragma unroll
  for (int i = 0; i < kMostTerms; ++i) {
    const auto& t = added.terms[i];
    if (output >= t.begin && output < t.begin + t.size)
      term = {static_cast<const T*>(t.b) + (output - t.begin) * t.rank, t.column, t.rank};
  }
  return term;
}

template <class T>
__device__ inline Eight eight_of(const Pack& pack) {
  return load8(reinterpret_cast<const T*>(pack.v));
}

template <class T>
__device__ inline uint2 load_four(const T* p) {
  return *reinterpret_cast<const uint2*>(p);
}

// The sums of a term for 16 rows x 32 outputs: four products of 16 rows x 8 outputs. Product t has
// the outputs 8 j + 2 t and 8 j + 2 t + 1 of each group j of 8, so that the results of a lane are
// eight adjacent ones.
struct Sums {
  Accumulator products[4];
};

// Row i of a patch, with the term.
template <class T>
__device__ inline Eight with_term(const LanePatch& y, const Sums& sums, float scale, int i) {
  Eight e = eight_of<T>(y.rows[i]);
#pragma unroll
  for (int k = 0; k < 8; ++k)
    e.v[k] = rounded<T>(e.v[k] + scale * sums.products[k / 2].v[2 * i + k % 2]);
  return e;
}

// Several terms for the same rows. The order of the ranks within 16 is arbitrary as long as both
// factors use the same one. All loads of a turn come before its products.
template <int kCount, class T>
__device__ inline void sum_terms(Sums (&sums)[kCount], const SpanTerm<T> (&terms)[kCount],
                                 const LowRank& added, const Lane& lane, std::int64_t row,
                                 std::int64_t rows) {
  const T* low = static_cast<const T*>(added.low) + row * added.stride + 4 * lane.column;
  const int b_row = lane.row / 2 * 8 + lane.row % 2;
  int most = 0;
#pragma unroll
  for (const auto& term : terms) most = max(most, term.rank);
#pragma unroll 1
  for (int at = 0; at < most; at += 16) {
    uint2 upper[kCount] = {}, lower[kCount] = {}, factors[kCount][4] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (at >= terms[i].rank) continue;
      if (row < rows) upper[i] = load_four(low + terms[i].column + at);
      if (row + 8 < rows) lower[i] = load_four(low + 8 * added.stride + terms[i].column + at);
      const T* b = terms[i].b + b_row * terms[i].rank + 4 * lane.column + at;
#pragma unroll
      for (int t = 0; t < 4; ++t) factors[i][t] = load_four(b + 2 * t * terms[i].rank);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int t = 0; t < 4; ++t)
        multiply<T>(sums[i].products[t], upper[i].x, lower[i].x, upper[i].y, lower[i].y,
                    factors[i][t].x, factors[i][t].y);
  }
}

// The first row of this warp's tile.
__device__ inline std::int64_t tile_row() {
  const auto warps = blockDim.x / 32;
  return (static_cast<std::int64_t>(blockIdx.y) * warps + threadIdx.x / 32) * kTileRows;
}

template <class T>
__global__ void add_low_rank_kernel(T* y, LowRank added, std::int64_t rows, std::int64_t width) {
  begin_after_earlier_kernels();
  const Lane lane;
  const std::int64_t tile = tile_row(), row = tile + lane.row;
  const std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * kSpan;
  const auto term = term_at<T>(added, output);
  if (tile >= rows || term.rank == 0) return;
  T* at = y + row * width + output + 8 * lane.column;
  const auto patch = load_patch(at, width, row, rows);
  const SpanTerm<T> terms[] = {term};
  Sums sums[1] = {};
  sum_terms(sums, terms, added, lane, row, rows);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (row + 8 * i < rows)
      store8(at + 8 * i * width, with_term<T>(patch, sums[0], added.scale, i));
}

template <class T>
__global__ void swiglu_low_rank_kernel(const T* gate_up, LowRank added, T* __restrict__ out,
                                       std::int64_t rows, std::int64_t width) {
  begin_after_earlier_kernels();
  const Lane lane;
  const std::int64_t tile = tile_row(), row = tile + lane.row;
  if (tile >= rows) return;
  const std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * kSpan;
  const T* at = gate_up + row * 2 * width + output + 8 * lane.column;
  const LanePatch halves[] = {load_patch(at, 2 * width, row, rows),
                              load_patch(at + width, 2 * width, row, rows)};
  const SpanTerm<T> terms[] = {term_at<T>(added, output), term_at<T>(added, width + output)};
  Sums sums[2] = {};
  sum_terms(sums, terms, added, lane, row, rows);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row + 8 * i >= rows) continue;
    const Eight gate = with_term<T>(halves[0], sums[0], added.scale, i);
    Eight product = with_term<T>(halves[1], sums[1], added.scale, i);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float g = gate.v[k];
      product.v[k] *= rounded<T>(g / (1.0F + __expf(-g)));
    }
    store8(out + (row + 8 * i) * width + output + 8 * lane.column, product);
  }
}

// A warp handles 32 dimensions of a head's first half, and their partners in the second half.
template <class T>
__global__ void rotate_into_pages_kernel(RotateIntoPages into, LowRank added, Rotation rotation,
                                         std::int64_t rows) {
  const Lane lane;
  const std::int64_t tile = tile_row(), row = tile + lane.row;
  if (tile >= rows) return;
  const int half = into.head_dim / 2, spans = half / kSpan;
  const int head = static_cast<int>(blockIdx.x) / spans;
  const int in_head = static_cast<int>(blockIdx.x) % spans * kSpan;
  const std::int64_t output = static_cast<std::int64_t>(head) * into.head_dim + in_head;
  const std::int64_t width =
      static_cast<std::int64_t>(into.heads + 2 * into.kv_heads) * into.head_dim;
  T* at = static_cast<T*>(into.qkv) + row * width + output + 8 * lane.column;
  const int kind = head < into.heads ? 0 : head < into.heads + into.kv_heads ? 1 : 2;  // q, k, v
  std::int64_t slots[2] = {}, positions[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row + 8 * i >= rows) continue;
    if (kind > 0) slots[i] = into.slots[row + 8 * i];
    if (kind < 2) positions[i] = rotation.positions[row + 8 * i];
  }
  Eight cosines[2] = {}, sines[2] = {};
  if (kind < 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t place = positions[i] * half + in_head + 8 * lane.column;
      cosines[i] = load8(rotation.cos + place);
      sines[i] = load8(rotation.sin + place);
    }
  }
  begin_after_earlier_kernels();  // the one before writes qkv, not what was read above
  const LanePatch halves[] = {load_patch(at, width, row, rows),
                              load_patch(at + half, width, row, rows)};
  const SpanTerm<T> terms[] = {term_at<T>(added, output), term_at<T>(added, output + half)};
  Sums sums[2] = {};
  sum_terms(sums, terms, added, lane, row, rows);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row + 8 * i >= rows) continue;
    Eight a = with_term<T>(halves[0], sums[0], added.scale, i);
    Eight b = with_term<T>(halves[1], sums[1], added.scale, i);
    if (kind < 2) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float cosine = rounded<T>(cosines[i].v[k]), sine = rounded<T>(sines[i].v[k]);
        const float x = a.v[k], y = b.v[k];
        a.v[k] = x * cosine - y * sine;
        b.v[k] = y * cosine + x * sine;
      }
    }
    T* to = at + 8 * i * width;
    if (kind > 0) {
      const std::int64_t kv_head =
          slots[i] * into.kv_heads + head - into.heads - (kind - 1) * into.kv_heads;
      to = static_cast<T*>(kind == 1 ? into.keys : into.values) + kv_head * into.head_dim +
           in_head + 8 * lane.column;
    }
    store8(to, a);
    store8(to + half, b);
  }
}

constexpr int kNormThreads = kWidestLowRankNorm / 8;

// One block per row, eight outputs per thread. Two lanes share the factors of one output, so that a
// warp reads 512 adjacent bytes; its 256 outputs meet in shared memory.
template <class T, bool kTerm>
__global__ void __launch_bounds__(kNormThreads, 1)
    norm_low_rank_kernel(const T* x, LowRank added, const T* residual, const T* __restrict__ w,
                         T* __restrict__ sum, T* __restrict__ y, int width, float eps) {
  __shared__ float shared[32];
  // Without a term no memory: the next kernel may need it for its weights.
  __shared__ alignas(16) float terms[kTerm ? kNormThreads * 8 : 8];
  const int i = static_cast<int>(threadIdx.x) * 8;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * width;
  const bool in = i < width;
  Pack x_pack{}, residual_pack{}, w_pack{};
  if (in) {
    w_pack = load_pack(w + i);
  }
  begin_after_earlier_kernels();
  if (in) {
    x_pack = load_pack(x + row + i);
    residual_pack = load_pack(residual + row + i);
  }
  Eight t{};
  const auto& term = added.terms[0];
  if constexpr (kTerm) {
    constexpr int kTurns = 16;  // of 16 outputs of a warp each
    const int half = static_cast<int>(threadIdx.x) % 2;
    const int output =
        static_cast<int>(threadIdx.x) / 32 * 256 + static_cast<int>(threadIdx.x) % 32 / 2;
    const T* low =
        static_cast<const T*>(added.low) + blockIdx.x * added.stride + term.column + 8 * half;
    const T* b =
        static_cast<const T*>(term.b) + static_cast<std::int64_t>(output) * term.rank + 8 * half;
    float sums[kTurns] = {};
#pragma unroll 1
    for (int at = 0; at < term.rank; at += 16) {
      const Eight f = load8(low + at);
      Pack factors[kTurns];
#pragma unroll
      for (int s = 0; s < kTurns; ++s)  // behind the last output: any other's
        factors[s] = load_pack(b + (output + 16 * s < width ? 16 * s * term.rank : 0) + at);
#pragma unroll
      for (int s = 0; s < kTurns; ++s) {
        const Eight g = eight_of<T>(factors[s]);
#pragma unroll
        for (int k = 0; k < 8; ++k) sums[s] += f.v[k] * g.v[k];
      }
    }
#pragma unroll
    for (int s = 0; s < kTurns; ++s) {
      const float both = sums[s] + __shfl_xor_sync(0xffffffffU, sums[s], 1);
      if (half == 0) terms[output + 16 * s] = both;
    }
    __syncwarp();
    if (in) t = load8(terms + i);
  }
  Eight e = eight_of<T>(x_pack);
  const Eight r = eight_of<T>(residual_pack);
  float squares = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    e.v[k] = rounded<T>(rounded<T>(e.v[k] + added.scale * t.v[k]) + r.v[k]);
    squares += e.v[k] * e.v[k];
  }
  const float scale = rsqrtf(block_sum(squares, shared) / static_cast<float>(width) + eps);
  if (!in) return;
  store8(sum + row + i, e);
  const Eight weight = eight_of<T>(w_pack);
#pragma unroll
  for (int k = 0; k < 8; ++k) e.v[k] = rounded<T>(e.v[k] * scale) * weight.v[k];
  store8(y + row + i, e);
}

constexpr int kRanks = 16;  // of a block
constexpr int kWarps = 16;
constexpr int kAhead = 4;  // loads in flight

// One block per 16 rows x 16 ranks; its warps share the depth, 32 at a time in turns, and their
// sums are added in the order of the warps.
template <class T>
__global__ void __launch_bounds__(kWarps * 32, 1)
    low_rank_product_kernel(const T* __restrict__ x, const T* __restrict__ a, T* __restrict__ low,
                            std::int64_t rows, std::int64_t ranks, std::int64_t depth) {
  __shared__ float parts[kWarps][kTileRows][kRanks];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Lane lane;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTileRows;
  const std::int64_t row = tile + lane.row;
  const std::int64_t rank = static_cast<std::int64_t>(blockIdx.y) * kRanks;
  const T* at = x + row * depth + 8 * lane.column;
  const T* factors = a + (rank + lane.row) * depth + 8 * lane.column;
  const bool upper_in = row < rows, lower_in = row + 8 < rows;
  constexpr std::int64_t kTurn = 32 * kWarps;
  Accumulator sums[2] = {};
  for (std::int64_t begin = 32 * warp; begin < depth; begin += kAhead * kTurn) {
    Pack upper[kAhead] = {}, lower[kAhead] = {}, f[kAhead][2] = {};
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const std::int64_t k = begin + j * kTurn;
      if (k >= depth) continue;
      if (upper_in) upper[j] = load_pack(at + k);
      if (lower_in) lower[j] = load_pack(at + 8 * depth + k);
      f[j][0] = load_pack(factors + k);
      f[j][1] = load_pack(factors + 8 * depth + k);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
#pragma unroll
      for (int t = 0; t < 2; ++t)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          multiply<T>(sums[t], upper[j].v[i], lower[j].v[i], upper[j].v[i + 1], lower[j].v[i + 1],
                      f[j][t].v[i], f[j][t].v[i + 1]);
  }
#pragma unroll
  for (int t = 0; t < 2; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      parts[warp][lane.row + i / 2 * 8][8 * t + 2 * lane.column + i % 2] = sums[t].v[i];
  __syncthreads();
  const int to_row = static_cast<int>(threadIdx.x) / kRanks;
  const int to_rank = static_cast<int>(threadIdx.x) % kRanks;
  if (to_row >= kTileRows || tile + to_row >= rows) return;
  float sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += parts[i][to_row][to_rank];
  low[(tile + to_row) * ranks + rank + to_rank] = from_float<T>(sum);
}

// For tiles of all rows, with several in a block.
struct Tiles {
  Tiles(std::int64_t rows, std::int64_t spans, std::int64_t most_warps) {
    const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    const std::int64_t warps = std::min(tiles, most_warps);
    threads = static_cast<unsigned>(warps * 32);
    blocks = dim3(static_cast<unsigned>(spans), static_cast<unsigned>((tiles + warps - 1) / warps));
  }

  LaunchShape shape() const { return {.blocks = blocks, .threads = dim3(threads)}; }

  dim3 blocks;
  unsigned threads;
};

}  // namespace

void low_rank_product(Type type, const void* x, const void* a, void* low, std::int64_t rows,
                      std::int64_t ranks, std::int64_t depth, cudaStream_t stream) {
  if (rows == 0 || ranks == 0) return;
  const dim3 blocks(static_cast<unsigned>((rows + kTileRows - 1) / kTileRows),
                    static_cast<unsigned>(ranks / kRanks));
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    low_rank_product_kernel<T>
        <<<blocks, kWarps * 32, 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(a),
                                             static_cast<T*>(low), rows, ranks, depth);
    check_launch("low_rank_product");
  });
}

void add_low_rank(Type type, void* y, const LowRank& added, std::int64_t rows, std::int64_t width,
                  cudaStream_t stream) {
  if (rows == 0) return;
  const Tiles tiles(rows, width / kSpan, 8);
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch_early(add_low_rank_kernel<T>, tiles.shape(), stream, static_cast<T*>(y), added, rows,
                 width);
    check_launch("add_low_rank");
  });
}

void swiglu(Type type, const void* gate_up, const LowRank& added, void* out, std::int64_t rows,
            std::int64_t width, cudaStream_t stream) {
  if (rows == 0) return;
  const Tiles tiles(rows, width / kSpan, 8);
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch_early(swiglu_low_rank_kernel<T>, tiles.shape(), stream, static_cast<const T*>(gate_up),
                 added, static_cast<T*>(out), rows, width);
    check_launch("swiglu with low-rank terms");
  });
}

void rotate_into_pages(Type type, const RotateIntoPages& into, const LowRank& added,
                       const Rotation& rotation, std::int64_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  const std::int64_t spans =
      static_cast<std::int64_t>(into.heads + 2 * into.kv_heads) * (into.head_dim / 2 / kSpan);
  const Tiles tiles(rows, spans, 2);
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch_early(rotate_into_pages_kernel<T>, tiles.shape(), stream, into, added, rotation, rows);
    check_launch("rotate_into_pages");
  });
}

void rms_norm(Type type, const void* x, const LowRank& added, const void* residual, const void* w,
              void* sum, void* y, const NormShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  const auto threads = static_cast<unsigned>((shape.width / 8 + 31) / 32 * 32);
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch_early(
        added.terms[0].size > 0 ? norm_low_rank_kernel<T, true> : norm_low_rank_kernel<T, false>,
        {.blocks = dim3(static_cast<unsigned>(shape.rows)), .threads = dim3(threads)}, stream,
        static_cast<const T*>(x), added, static_cast<const T*>(residual), static_cast<const T*>(w),
        static_cast<T*>(sum), static_cast<T*>(y), static_cast<int>(shape.width),
        static_cast<float>(shape.eps));
    check_launch("rms_norm with low-rank terms");
  });
}

}  // namespace mgpu::kernels
