#include "runtime/kernels/few_rows.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "runtime/kernels/early_launch.cuh"
#include "runtime/kernels/hopper.cuh"
#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/tile_map.cuh"

// Reading the weights takes longest. So they are on their way to shared memory all the time, in as
// many stages as fit, and the copy engine begins before the kernel before this one has ended. The
// rows of x are those of the tensor cores' tiles, and outputs their columns: so a block may have
// any multiple of 8 outputs, and all multiprocessors the same work. Where outputs are too few for
// that, the blocks of a cluster share the depth, and add their sums in the order of the blocks.
namespace mgpu::kernels {
namespace {

constexpr int kDepth = 64;         // of a stage: 128 bytes, the width of the swizzle
constexpr int kTileRows = 64;      // of x, for four warps
constexpr int kLine = kDepth * 2;  // bytes
// Of four warps, each with the sums of 64 rows x `width` outputs in its registers.
constexpr int most_groups(int width) {
  return width > 128 ? 2 : 4;
}
constexpr int kMostStages = 32;
constexpr int kSharedMemory = 220 * 1024;

struct Shape {
  int rows, outputs, ranks, chunks;  // a chunk: kDepth
  int tiles;  // of outputs, each of one block or cluster; those of ranks follow
  int row_tiles, groups, splits, stages;
  int x_lines, stage_lines;  // lines of 128 bytes in shared memory
  bool gated;                // w has the gates of `outputs` outputs, then their factors
};

int pitch_of(int columns) {
  // Rows of fp32 that begin 8 banks apart: pairs written by a warp have banks of their own.
  return (columns + 23) / 32 * 32 + 8;
}

template <class T>
struct Places {
  const T* bias;
  T *y, *low;
};

template <class T>
__device__ inline void store_pair(T* to, float a, float b) {
  if constexpr (std::is_same_v<T, f16>) {
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(a, b);
  } else {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
  }
}

// silu(gate) * up, rounded as by swiglu() of their products.
template <class T>
__device__ inline float gated(float gate, float up) {
  const float g = rounded<T>(gate);
  return rounded<T>(up) * rounded<T>(g / (1.0F + __expf(-g)));
}

// The thread that feeds the copy engine.
__device__ inline void copy_chunks(const CUtensorMap& x, const CUtensorMap& w, const Shape& s,
                                   int width, int output, int begin, int end, unsigned memory,
                                   unsigned full, unsigned empty) {
  hopper::prefetch(w);
  hopper::prefetch(x);
  const unsigned bytes = static_cast<unsigned>((s.rows + s.groups * width) * kLine);
  const auto copy_w = [&](int chunk, int stage) {
    const unsigned to = memory + static_cast<unsigned>((stage * s.stage_lines + s.x_lines) * kLine);
    hopper::expect_bytes(full + 8 * stage, bytes);
    // A group's tile, or the two halves of it.
    const int parts = s.gated ? 2 : 1, lines = width / parts;
    for (int n = 0; n < parts * s.groups; ++n)
      hopper::copy_tile(to + static_cast<unsigned>(n * lines * kLine), w, chunk * kDepth,
                        output + n / parts * lines + n % parts * s.outputs, full + 8 * stage);
  };
  const auto copy_x = [&](int chunk, int stage) {
    hopper::copy_tile(memory + static_cast<unsigned>(stage * s.stage_lines * kLine), x,
                      chunk * kDepth, 0, full + 8 * stage);
  };
  const int early = min(s.stages, end - begin);
  for (int i = 0; i < early; ++i) copy_w(begin + i, i);
  wait_for_earlier_kernels();  // one of them writes x
  let_next_kernel_begin();
  for (int i = 0; i < early; ++i) copy_x(begin + i, i);
  int stage = 0;
  unsigned parity = 0;
  for (int i = begin + early; i < end; ++i) {
    hopper::wait(empty + 8 * stage, parity);
    copy_w(i, stage);
    copy_x(i, stage);
    if (++stage == s.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

template <class T, int kAtom, int kAtoms>
__global__ void __launch_bounds__(most_groups(kAtom* kAtoms) * 128 + 32)
    few_rows_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                    const __grid_constant__ CUtensorMap low, Places<T> places, Shape s, int pitch) {
  constexpr int kWidth = kAtom * kAtoms;
  extern __shared__ unsigned char unaligned[];
  __shared__ alignas(8) std::uint64_t barriers[2 * kMostStages];
  const unsigned memory = (hopper::shared_address(unaligned) + 1023U) & ~1023U;
  const unsigned full = hopper::shared_address(barriers), empty = full + 8 * kMostStages;
  const int consumers = s.row_tiles * s.groups;
  const int part = static_cast<int>(blockIdx.x);  // of the depth
  const int begin = s.chunks * part / s.splits, end = s.chunks * (part + 1) / s.splits;
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.stages; ++i) {
      hopper::init_barrier(full + 8 * i, 1);
      hopper::init_barrier(empty + 8 * i, static_cast<unsigned>(consumers));
    }
    hopper::publish_barriers();
  }
  __syncthreads();

  const int group = static_cast<int>(threadIdx.x) / 128;
  const int tile = group % s.row_tiles, column_group = group / s.row_tiles;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // This thread's first row and output within the block.
  const int row = tile * kTileRows + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
  const int column = column_group * kWidth + lane % 4 * 2;
  const int block_outputs = s.groups * kWidth / (s.gated ? 2 : 1);
  const bool is_low = static_cast<int>(blockIdx.y) >= s.tiles;
  const int output = (static_cast<int>(blockIdx.y) - (is_low ? s.tiles : 0)) * block_outputs;
  const int outputs = is_low ? s.ranks : s.outputs;
  const T* bias = is_low ? nullptr : places.bias;
  T* y = is_low ? places.low : places.y;

  if (group == consumers) {
    if (lane == 0)
      copy_chunks(x, is_low ? low : w, s, kWidth, output, begin, end, memory, full, empty);
    __syncwarp();
  } else {
    float sums[kAtoms][kAtom / 2];
#pragma unroll
    for (auto& atom : sums)
#pragma unroll
      for (float& v : atom) v = 0;
    int stage = 0;
    unsigned parity = 0, before = 0;
    for (int i = begin; i < end; ++i) {
      hopper::wait(full + 8 * stage, parity);
      const unsigned at = memory + static_cast<unsigned>(stage * s.stage_lines * kLine);
      const auto a = hopper::tile_descriptor(at + static_cast<unsigned>(tile * kTileRows * kLine));
      const auto b = hopper::tile_descriptor(
          at + static_cast<unsigned>((s.x_lines + column_group * kWidth) * kLine));
      hopper::begin_products();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k)
#pragma unroll
        for (int c = 0; c < kAtoms; ++c)
          hopper::multiply_tiles<T>(sums[c], a + 2 * k, b + 2 * k + c * kAtom * kLine / 16);
      hopper::end_products();
      hopper::wait_for_products<1>();
      if (i > begin && threadIdx.x % 128 == 0) hopper::arrive(empty + 8 * before);
      before = static_cast<unsigned>(stage);
      if (++stage == s.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    hopper::wait_for_products<0>();
    if (s.splits == 1) {
      wait_for_earlier_kernels();  // one of them may still read the memory of y
      // Pair i of the sums for columns 8 j and 8 j + 1 of this thread's.
      const auto pair = [&](int j, int i) {
        const float* at = sums[j / (kAtom / 8)] + j % (kAtom / 8) * 4 + 2 * i;
        return float2{at[0], at[1]};
      };
      const auto plus = [](float2 pair, const T* more, int at) {
        return more == nullptr
                   ? pair
                   : float2{pair.x + to_float(more[at]), pair.y + to_float(more[at + 1])};
      };
      constexpr int kHalf = kWidth / 16;  // in units of 8 columns
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
        if (s.gated && j >= kHalf) break;
        const int to =
            output + (s.gated ? column_group * kWidth / 2 + lane % 4 * 2 : column) + 8 * j;
        if (to >= outputs) continue;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (row + 8 * i >= s.rows) continue;
          float2 v = plus(pair(j, i), bias, to);
          if (s.gated && j < kHalf) {
            const float2 up =
                plus(pair(j + kHalf < kWidth / 8 ? j + kHalf : 0, i), bias, s.outputs + to);
            v = {gated<T>(v.x, up.x), gated<T>(v.y, up.y)};
          }
          store_pair(y + static_cast<std::int64_t>(row + 8 * i) * outputs + to, v.x, v.y);
        }
      }
      return;
    }
    // All groups have read the stages: the sums take their place.
    asm volatile("bar.sync 1, %0;" ::"r"(consumers * 128) : "memory");
    const unsigned to = memory + static_cast<unsigned>(row * pitch + column) * 4;
#pragma unroll
    for (int c = 0; c < kAtoms; ++c)
#pragma unroll
      for (int j = 0; j < kAtom / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
                           to + static_cast<unsigned>(8 * i * pitch + c * kAtom + 8 * j) * 4),
                       "f"(sums[c][4 * j + 2 * i]), "f"(sums[c][4 * j + 2 * i + 1])
                       : "memory");
  }
  if (s.splits == 1) return;

  cluster_sync();
  wait_for_earlier_kernels();
  const int fours = min(block_outputs, outputs - output) / 4, items = s.rows * fours;
  const int stride = s.splits * static_cast<int>(blockDim.x);
  constexpr int kAhead = 4;  // loads of a thread that are on their way together
  const int parts = s.gated ? 2 : 1;
  for (int first = part * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
       first < items; first += kAhead / parts * stride) {
    float4 sum[kAhead] = {};
    for (int from = 0; from < s.splits; ++from) {
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        const int item = min(first + n / parts * stride, items - 1);
        int place = item % fours * 4;
        if (s.gated) place += place / (kWidth / 2) * (kWidth / 2) + n % 2 * (kWidth / 2);
        const float4 v = load_floats(
            address_in_block(memory + static_cast<unsigned>(item / fours * pitch + place) * 4,
                             static_cast<unsigned>(from)));
        sum[n].x += v.x;
        sum[n].y += v.y;
        sum[n].z += v.z;
        sum[n].w += v.w;
      }
    }
    const auto add_bias = [&](float4& v, int at) {
      if (bias == nullptr) return;
      v.x += to_float(bias[at]);
      v.y += to_float(bias[at + 1]);
      v.z += to_float(bias[at + 2]);
      v.w += to_float(bias[at + 3]);
    };
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (n % parts != 0) continue;
      const int item = first + n / parts * stride;
      if (item >= items) break;
      const int to = output + item % fours * 4;
      float4 v = sum[n];
      add_bias(v, to);
      if (s.gated) {
        float4 up = sum[n + 1 < kAhead ? n + 1 : n];
        add_bias(up, s.outputs + to);
        v = {gated<T>(v.x, up.x), gated<T>(v.y, up.y), gated<T>(v.z, up.z), gated<T>(v.w, up.w)};
      }
      T* at = y + static_cast<std::int64_t>(item / fours) * outputs + to;
      store_pair(at, v.x, v.y);
      store_pair(at + 2, v.z, v.w);
    }
  }
  cluster_sync();  // others may still read this block's sums
}

int round_up(std::int64_t x, int to) {
  return static_cast<int>((x + to - 1) / to) * to;
}

Shape shape_of(const FewRows& p, const FewRowsPlan& plan) {
  Shape s{};
  s.rows = static_cast<int>(p.rows);
  s.outputs = static_cast<int>(p.outputs);
  s.ranks = static_cast<int>(p.ranks);
  s.gated = p.gated;
  const int block_outputs = plan.groups * plan.width / (p.gated ? 2 : 1);
  s.tiles = round_up(p.outputs, block_outputs) / block_outputs;
  s.chunks = static_cast<int>((p.depth + kDepth - 1) / kDepth);
  s.row_tiles = round_up(p.rows, kTileRows) / kTileRows;
  s.groups = plan.groups;
  s.splits = plan.splits;
  s.x_lines = round_up(p.rows, 8);
  // The last tile of x may be less than 64 rows: what follows is read in their place, and the
  // results are not used.
  s.stage_lines = std::max(s.x_lines + plan.groups * plan.width, s.row_tiles * kTileRows);
  const int fit = kSharedMemory / (s.stage_lines * kLine);
  const int useful = (s.chunks + s.splits - 1) / s.splits;
  s.stages = std::min({plan.stages > 0 ? plan.stages : kMostStages, fit, kMostStages, useful});
  return s;
}

std::size_t shared_bytes(const Shape& s, int width) {
  const int sums = s.splits > 1 ? s.row_tiles * kTileRows * pitch_of(s.groups * width) * 4 : 0;
  return static_cast<std::size_t>(std::max(s.stages * s.stage_lines * kLine, sums) + 1024);
}

LaunchShape launch_of(const Shape& s, const FewRowsPlan& plan) {
  const int tiles =
      s.tiles + round_up(s.ranks, plan.groups * plan.width) / (plan.groups * plan.width);
  return {.blocks = dim3(static_cast<unsigned>(s.splits), static_cast<unsigned>(tiles)),
          .threads = dim3(static_cast<unsigned>(s.row_tiles * s.groups * 128 + 32)),
          .shared_bytes = shared_bytes(s, plan.width),
          .cluster = s.splits,
          .early = plan.early};
}

// Calls f with the kernel for a width.
template <class T, class F>
void with_kernel(int width, const F& f) {
  switch (width) {
    case 48:
      return f(few_rows_kernel<T, 48, 1>);
    case 64:
      return f(few_rows_kernel<T, 64, 1>);
    case 96:
      return f(few_rows_kernel<T, 48, 2>);
    case 128:
      return f(few_rows_kernel<T, 64, 2>);
    case 144:
      return f(few_rows_kernel<T, 48, 3>);
    case 192:
      return f(few_rows_kernel<T, 64, 3>);
    default:
      throw std::logic_error("few_rows: no kernel of this width");
  }
}

}  // namespace

bool can_few_rows(const FewRows& p, const FewRowsPlan& plan) {
  if (p.rows < 1 || p.rows > kMostFewRows || p.depth % 8 != 0 || p.outputs % 8 != 0 ||
      p.ranks % 8 != 0 || (p.gated && p.ranks > 0))
    return false;
  const auto s = shape_of(p, plan);
  // A stage is free for the next chunk only when the chunk behind it is there.
  const bool enough = s.stages >= 2 || (s.stages == 1 && s.chunks <= s.splits);
  return s.row_tiles * s.groups <= most_groups(plan.width) && enough &&
         shared_bytes(s, plan.width) <= kSharedMemory + 1024;
}

void few_rows(Type type, const FewRows& p, const FewRowsPlan& plan, cudaStream_t stream) {
  if (p.rows == 0) return;
  const auto s = shape_of(p, plan);
  const auto x = tile_map(type, p.x, p.rows, p.depth, s.rows);
  const auto w = p.gated ? tile_map(type, p.w, 2 * p.outputs, p.depth, plan.width / 2)
                         : tile_map(type, p.w, p.outputs, p.depth, plan.width);
  const auto a = p.ranks > 0 ? tile_map(type, p.a, p.ranks, p.depth, plan.width) : w;
  const auto shape = launch_of(s, plan);
  with_bf16_or_f16(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    with_kernel<T>(plan.width, [&](auto* kernel) {
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shape.shared_bytes));
      const Places<T> places{static_cast<const T*>(p.bias), static_cast<T*>(p.y),
                             static_cast<T*>(p.low)};
      launch_early(kernel, shape, stream, x, w, a, places, s, pitch_of(s.groups * plan.width));
      check_launch("few_rows");
    });
  });
}

}  // namespace mgpu::kernels
