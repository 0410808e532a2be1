#pragma once

#include <cfloat>
#include <type_traits>

#include "runtime/kernels/mma.cuh"
#include "runtime/kernels/paged_join.cuh"
#include "runtime/kernels/vector.cuh"

// What a warp computes of attention over pages; see paged_mma.cu.
namespace mgpu::kernels {

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

constexpr int kPageTokens = 16;
constexpr int kHeadsOfProduct = 8;  // unused ones are zeros

// The queries of one key head, as a warp holds them: lane l has those of head l / 4. kInTiles: keys
// are in tiles of 64 dimensions with the copy engine's swizzle of 128 bytes.
template <class T, int kDim, bool kInTiles = false>
struct Queries {
  Pack packs[kDim / 32];

  // Of packs[c], for the column l % 4. In tiles, the 16 bytes that lanes of adjacent rows read at a
  // time are in different banks of shared memory.
  __device__ static constexpr int first_dimension(int c, int column) {
    return kInTiles ? c / 2 * 64 + column * 16 + c % 2 * 8 : c * 32 + column * 8;
  }

  __device__ void load(const PagedAttention& a, std::int64_t sequence, int kv_head, int heads) {
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4;
    const T* at = static_cast<const T*>(a.q) + sequence * a.q_stride +
                  static_cast<std::int64_t>(kv_head * heads + row) * kDim;
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      if (row < heads) {
        packs[c] = load_pack(at + first_dimension(c, column));
      } else {
        packs[c] = {};
      }
    }
  }
};

// Adds a page: key(i, c) is 16 bytes of the key of token l / 4 + 8 i, the dimensions from
// first_dimension(c, l % 4); value(t, p) is 16 bytes of the value of token 2 (l % 4) +
// {0, 1, 8, 9}[t], the dimensions from 64 p + 8 (l / 4). Tokens from `left` on do not count.
template <class T, int kDim, bool kInTiles, class Key, class Value>
__device__ inline void add_page(Past<kDim>& past, const Queries<T, kDim, kInTiles>& q,
                                const Key& key, const Value& value, int left, float scale) {
  const int row = threadIdx.x % 32 / 4;
  Accumulator s{};  // [16 tokens x 8 heads]
#pragma unroll
  for (int c = 0; c < kDim / 32; ++c) {
    const Pack upper = key(0, c), lower = key(1, c);
#pragma unroll
    for (int k = 0; k < 4; k += 2)
      multiply<T>(s, upper.v[k], lower.v[k], upper.v[k + 1], lower.v[k + 1], q.packs[c].v[k],
                  q.packs[c].v[k + 1]);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) s.v[k] = row + k / 2 * 8 < left ? s.v[k] * scale : -INFINITY;
  past.weigh(s);

  const unsigned weights0 = transposed(pair_of<T>(s.v[0], s.v[1]));
  const unsigned weights1 = transposed(pair_of<T>(s.v[2], s.v[3]));
#pragma unroll
  for (int p = 0; p < kDim / 64; ++p) {
    Pack v[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) v[t] = value(t, p);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply<T>(past.values[p * 4 + k], lows(v[0].v[k], v[1].v[k]), highs(v[0].v[k], v[1].v[k]),
                  lows(v[2].v[k], v[3].v[k]), highs(v[2].v[k], v[3].v[k]), weights0, weights1);
  }
}

// The part of this warp.
template <int kParts, int kDim>
__device__ inline void store_part(Joined<kParts, kHeadsOfProduct, kDim>& joined,
                                  const Past<kDim>& past) {
  const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = over_rows(past.total[h], [](float x, float y) { return x + y; });
    if (row == 0) {
      joined.largest[warp][2 * column + h] = past.largest[h] * kLn2;
      joined.total[warp][2 * column + h] = total;
    }
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      const int d = i / 4 * 64 + row * 8 + i % 4 * 2;
      joined.value[warp][2 * column + h][d] = past.values[i].v[h];
      joined.value[warp][2 * column + h][d + 1] = past.values[i].v[h + 2];
    }
  }
}

}  // namespace mgpu::kernels
