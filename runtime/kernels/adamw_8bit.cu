#include "runtime/kernels/adamw.cuh"
#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/moment_codes.hpp"

// Each warp handles one block of 256 elements, and each lane eight adjacent elements of it.
namespace mgpu::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kCodes = 256;
constexpr int kBlock = 256;
constexpr int kBlocks = 4;  // on an SM
// As many blocks as 132 SMs hold at a time: each loads the tables once, and none comes later alone.
constexpr int kGrid = kBlocks * 132;

struct Table {
  float levels[kCodes];
  std::uint32_t entries[kCodeEntries];
};

__device__ void load_table(Table& table, const float* from) {
  for (int i = threadIdx.x; i < kCodes; i += kThreads) table.levels[i] = from[i];
  for (int i = threadIdx.x; i < kCodeEntries; i += kThreads)
    table.entries[i] = __float_as_uint(from[2 * kCodes + i]);
}

// Eight elements from `i` on. Those outside [0, n) do not exist and read as 0. `whole`: all eight
// exist and are aligned, so that one instruction can load them.
struct Place {
  std::int64_t i, n;
  bool whole;
  __device__ bool has(int k) const { return i + k >= 0 && i + k < n; }
};

template <class T>
__device__ Eight load(const T* from, const Place& at) {
  if (at.whole) return load8(from + at.i);
  Eight e;
#pragma unroll
  for (int k = 0; k < 8; ++k) e.v[k] = at.has(k) ? to_float(from[at.i + k]) : 0.0F;
  return e;
}

template <class T>
__device__ void store(T* to, const Place& at, const Eight& e) {
  if (at.whole) {
    store8(to + at.i, e);
    return;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k)
    if (at.has(k)) to[at.i + k] = from_float<T>(e.v[k]);
}

__device__ Eight decode(const CodedMoment& moment, const Table& table, std::int64_t block,
                        const Place& at) {
  uint2 words = {0, 0};
  if (at.whole) {
    words = *reinterpret_cast<const uint2*>(moment.codes + at.i);
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k)
      if (at.has(k)) (k < 4 ? words.x : words.y) |= unsigned{moment.codes[at.i + k]} << (k % 4 * 8);
  }
  const float scale = moment.scales[block];
  Eight e;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const unsigned code = (k < 4 ? words.x : words.y) >> (k % 4 * 8) & 255U;
    e.v[k] = __fmul_rn(table.levels[code], scale);
  }
  return e;
}

// All lanes of a warp must call it together, with 0 for elements that do not exist.
template <bool kNegative>
__device__ void encode(const CodedMoment& moment, const Table& table, std::int64_t block,
                       const Place& at, const Eight& e) {
  float largest = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) largest = fmaxf(largest, fabsf(e.v[k]));
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, lanes));
  if (threadIdx.x % 32 == 0) moment.scales[block] = largest;
  const float inverse = __fdiv_rn(1.0F, fmaxf(largest, 1e-38F));
  uint2 words = {0, 0};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float scaled = fminf(fmaxf(__fmul_rn(e.v[k], inverse), kNegative ? -1.0F : 0.0F), 1.0F);
    const unsigned code = code_of<kNegative>(table.entries, __float_as_uint(scaled));
    (k < 4 ? words.x : words.y) |= code << (k % 4 * 8);
  }
  if (at.whole) {
    *reinterpret_cast<uint2*>(moment.codes + at.i) = words;
    return;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k)
    if (at.has(k))
      moment.codes[at.i + k] =
          static_cast<std::uint8_t>((k < 4 ? words.x : words.y) >> (k % 4 * 8));
}

template <class V, class G>
__global__ void __launch_bounds__(kThreads, kBlocks)
    adamw_8bit_kernel(AdamW a, float* master, V* value, const G* grad, CodedMoment first,
                      CodedMoment second, std::int64_t lead, const float* clip, const float* skip,
                      const float* count, std::int64_t n, bool aligned) {
  __shared__ Table first_table, second_table;
  if (*skip != 0.0F) return;
  load_table(first_table, first.table);
  load_table(second_table, second.table);
  __syncthreads();
  const AdamWUpdate update(a, *clip, *count);
  const std::int64_t blocks = (lead + n + kBlock - 1) / kBlock;
  for (std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       block < blocks; block += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    Place at{block * kBlock - lead + threadIdx.x % 32 * 8, n, false};
    at.whole = aligned && at.i >= 0 && at.i + 8 <= n;
    Eight w = load(master, at);
    const Eight g = load(grad, at);
    Eight m = decode(first, first_table, block, at);
    Eight v = decode(second, second_table, block, at);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      update(w.v[k], g.v[k], m.v[k], v.v[k]);
      if (!at.has(k)) m.v[k] = v.v[k] = 0.0F;  // must not affect the scale
    }
    store(master, at, w);
    if (value != nullptr) store(value, at, w);
    encode<true>(first, first_table, block, at, m);
    encode<false>(second, second_table, block, at, v);
  }
}

}  // namespace

void adamw_8bit(const AdamW& a, float* master, Type value_type, void* value, Type grad_type,
                const void* grad, const CodedMoment& first, const CodedMoment& second,
                std::int64_t lead, const float* clip, const float* skip, const float* count,
                std::int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  bool aligned = lead % 8 == 0;
  for (const void* p :
       {static_cast<const void*>(master), static_cast<const void*>(value), grad,
        static_cast<const void*>(first.codes), static_cast<const void*>(second.codes)})
    aligned = aligned && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  const std::int64_t blocks = (lead + n + kBlock * kWarps - 1) / (kBlock * kWarps);
  const auto grid = static_cast<unsigned>(blocks < kGrid ? blocks : kGrid);
  with_bf16_or_f16(value_type, [&](auto* value_tag) {
    with_f32_or_bf16(grad_type, [&](auto* grad_tag) {
      using V = std::remove_pointer_t<decltype(value_tag)>;
      using G = std::remove_pointer_t<decltype(grad_tag)>;
      adamw_8bit_kernel<V, G><<<grid, kThreads, 0, stream>>>(
          a, master, static_cast<V*>(value), static_cast<const G*>(grad), first, second, lead, clip,
          skip, count, n, aligned);
      check_launch("adamw_8bit");
    });
  });
}

}  // namespace mgpu::kernels
