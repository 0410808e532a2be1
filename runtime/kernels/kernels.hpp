#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Our CUDA kernels. They take raw pointers and a stream and compute in fp32. Rows are contiguous
// unless a stride is given. Widths must be multiples of 8 and pointers aligned to 16 bytes: see
// vectorizable(). Sums over rows have a fixed order, so that a run can be repeated bit for bit.
namespace mgpu::kernels {

enum class Type { f32, bf16, f16 };

inline bool vectorizable(const void* p, std::int64_t width) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && width % 8 == 0;
}

struct NormShape {
  std::int64_t rows = 0, width = 0;  // width at most kWidestNorm for backward
  double eps = 0;
};
inline constexpr std::int64_t kWidestNorm = 8192;

// y = w * (x [+ residual]) / rms; rstd is [rows]. With a residual, the sum is written to `sum`.
void rms_norm(Type type, const void* x, const void* residual, const void* w, void* sum, void* y,
              float* rstd, const NormShape& shape, cudaStream_t stream);

// gx = d/dx [+ residual]; gw += d/dw in fp32 unless gw is null. `scratch` has norm_scratch(width)
// floats.
std::int64_t norm_scratch(std::int64_t width);
void rms_norm_backward(Type type, const void* gy, const void* x, const void* w, const float* rstd,
                       const void* residual, void* gx, float* gw, float* scratch,
                       const NormShape& shape, cudaStream_t stream);

// Applies the rotary embedding in place to the first `heads` heads of every row. cos and sin are
// [positions, head_dim / 2]; `back` rotates in the opposite direction.
struct RotateShape {
  std::int64_t rows = 0, stride = 0, heads = 0, head_dim = 0;  // head_dim a multiple of 16
};
void rotate(Type type, void* x, const float* cos, const float* sin, const std::int32_t* positions,
            bool back, const RotateShape& shape, cudaStream_t stream);

// Norms each head of q and k and rotates it, in place; the heads of v stay. With `before` the heads
// are saved as they were, and rstd is [rows, heads + kv_heads].
struct HeadNorms {
  std::int64_t rows = 0, stride = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float eps = 0;
};
struct HeadWeights {
  const void *q, *k;
};
struct Rotation {
  const float *cos, *sin;  // [positions, head_dim / 2]
  const std::int32_t* positions;
};
bool can_norm_heads(std::int64_t head_dim);
void norm_heads(Type type, void* qkv, const HeadWeights& weights, const Rotation& rotation,
                void* before, float* rstd, const HeadNorms& shape, cudaStream_t stream);
// In place on the gradient; gq and gk, in fp32, may be null. `scratch` has
// head_norms_scratch(head_dim) floats.
std::int64_t head_norms_scratch(std::int64_t head_dim);
void norm_heads_backward(Type type, void* g_qkv, const HeadWeights& weights,
                         const Rotation& rotation, const void* before, const float* rstd, float* gq,
                         float* gk, float* scratch, const HeadNorms& shape, cudaStream_t stream);

// out[i] = table[rows[i]] for `count` rows of `row_bytes` each, a multiple of 16. The table may be
// in pinned host memory.
void copy_rows(const void* table, const std::int32_t* rows, void* out, std::int64_t count,
               std::int64_t row_bytes, cudaStream_t stream);

// gate_up [rows, 2 width] -> silu(gate) * up [rows, width].
void swiglu(Type type, const void* gate_up, void* out, std::int64_t rows, std::int64_t width,
            cudaStream_t stream);
// out = the gradient of gate_up; overwrites g by silu(gate) * up.
void swiglu_backward(Type type, void* g, const void* gate_up, void* out, std::int64_t rows,
                     std::int64_t width, cudaStream_t stream);

// out = x where a random number of 16 bits is at least `threshold`, times 2^16 / (2^16 -
// threshold), else 0. Each element's number follows from the seed and its place. `out` may be x.
struct Dropout {
  std::uint64_t seed = 0;
  std::uint32_t threshold = 0;  // at most 2^16 - 1
};
void dropout(Type type, const void* x, void* out, std::int64_t elements, const Dropout& dropout,
             cudaStream_t stream);

// For each row of logits [rows, vocab], all multiplied by `sharpness`: the loss, whether the target
// is the largest logit, and the entropy. With `overwrite` the logits are replaced by the gradient
// of scale * loss or, if `slopes` is given, of entropy_slopes * entropy - slopes * loss with
// factors for each row. Rows with a target below 0 give 0 everywhere.
struct CrossEntropyIn {
  const std::int32_t* targets;
  bool overwrite = false;
  float scale = 0;
  float sharpness = 1;
  const float* slopes = nullptr;          // null: -scale
  const float* entropy_slopes = nullptr;  // null: 0
};
struct CrossEntropyOut {
  float* loss;
  bool* correct;  // may be null
  float* entropy;
};
void cross_entropy(Type type, void* logits, const CrossEntropyIn& in, const CrossEntropyOut& out,
                   std::int64_t rows, std::int64_t vocab, cudaStream_t stream);

// AdamW as torch computes it: decay first. `value`, in bf16 or f16, gets the rounded master unless
// it is null. Gradients and moments are in f32 or bf16. clip, skip and count (steps taken,
// including this one) are scalars on the device; nothing changes if skip is 1.
struct AdamW {
  float lr, beta1, beta2, eps, decay;
};
void adamw(const AdamW& a, float* master, Type value_type, void* value, Type grad_type,
           const void* grad, Type moment_type, void* first, void* second, const float* clip,
           const float* skip, const float* count, std::int64_t n, cudaStream_t stream);

// The same with moments as 8-bit codes: value = levels[code] * scales[block]. The scale is the
// largest magnitude in a block of 256 elements; the first block lacks `lead` elements at its
// beginning. A table has 256 ascending levels, the 256 borders between each level and the next, and
// the entries of code_of(); that of the first moment has negative levels. Buffers need only be
// aligned to their elements; it is fast if they are aligned to 16 bytes and `lead` is a multiple
// of 8.
struct CodedMoment {
  std::uint8_t* codes;
  float* scales;
  const float* table;
};
void adamw_8bit(const AdamW& a, float* master, Type value_type, void* value, Type grad_type,
                const void* grad, const CodedMoment& first, const CodedMoment& second,
                std::int64_t lead, const float* clip, const float* skip, const float* count,
                std::int64_t n, cudaStream_t stream);

// Dequantizes n NF4 codes, two per byte; n is a multiple of 64. Block b of 64 elements has the
// scale plain[b] or, if `plain` is null, levels[indices[b]] * outer[b / 256] + *offset.
struct Nf4Scales {
  const float* plain = nullptr;  // used if not null
  const std::uint8_t* indices = nullptr;
  const float* levels = nullptr;
  const float* outer = nullptr;
  const float* offset = nullptr;
};
void nf4_dequantize(Type type, const std::uint8_t* codes, const Nf4Scales& scales, void* out,
                    std::int64_t n, cudaStream_t stream);

// Attention of one query per sequence over keys and values in pages of 16 tokens; see paged.hpp.
// With several splits, the results of the parts are stored in fp32: part_values is [sequences *
// heads * splits, head_dim], the others are [sequences * heads * splits].
struct PagedAttention {
  const void* q;  // [sequences, heads * head_dim], rows q_stride apart
  const void* keys;
  const void* values;
  const std::int32_t* table;
  const std::int32_t* lengths;
  void* out;
  std::int64_t q_stride, table_stride;
  int kv_heads, splits;
  float scale;
  float* part_values;
  float* part_largest;
  float* part_totals;
  std::int64_t tokens = 0;  // for which the pages have room
};
bool paged_attention_supports(int heads_per_key, int head_dim);
void paged_attention(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                     std::int64_t sequences, cudaStream_t stream);
// The implementation for bf16 and f16, on tensor cores.
void paged_attention_16_bit(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                            std::int64_t sequences, cudaStream_t stream);
// The same from compute capability 9.0 on. It reads the table, the lengths and all pages but those
// of the newest tokens before the kernels before it have ended. So between what writes them and
// this, there must be a product or another kernel that is not launched early.
void paged_attention_of_tiles(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                              std::int64_t sequences, cudaStream_t stream);

// Copies the keys and values of rows to their slots. Strides and widths are in units of 16 bytes; a
// row's values follow its keys.
struct PagedCopy {
  const uint4* keys_from;
  std::int64_t stride;  // between rows
  int width;            // of a row's keys, and of its values
  const std::int64_t* slots;
  uint4* keys;
  uint4* values;
};
void put_in_pages(const PagedCopy& copy, std::int64_t rows, cudaStream_t stream);

// What low-rank factors add to the output y of a linear layer: each term adds
// scale * low[:, column : column + rank] b^T to `size` outputs from `begin` on. Only in 16 bits.
// Terms do not overlap. begin and size are multiples of 32, columns and ranks of 16.
struct LowRankTerm {
  const void* b = nullptr;  // [size, rank]
  std::int64_t begin = 0, size = 0, column = 0;
  int rank = 0;
};
inline constexpr int kMostTerms = 3;  // q, k and v
struct LowRank {
  const void* low = nullptr;  // [rows, stride]
  std::int64_t stride = 0;
  float scale = 0;
  LowRankTerm terms[kMostTerms];  // unused ones have the size 0
};

// low = x a^T, for few rows: x is [rows, depth], a is [ranks, depth]. depth is a multiple of 32,
// ranks of 16.
void low_rank_product(Type type, const void* x, const void* a, void* low, std::int64_t rows,
                      std::int64_t ranks, std::int64_t depth, cudaStream_t stream);
// Adds to y [rows, width] in place.
void add_low_rank(Type type, void* y, const LowRank& added, std::int64_t rows, std::int64_t width,
                  cudaStream_t stream);
// The same joined with what uses y. All round y + the terms to the type of y before they use it.
// swiglu of gate_up: width is a multiple of 32.
void swiglu(Type type, const void* gate_up, const LowRank& added, void* out, std::int64_t rows,
            std::int64_t width, cudaStream_t stream);
// sum = x + residual, y = its norm. The first term, if there is one, is for all of x.
inline constexpr std::int64_t kWidestLowRankNorm = 4096;
void rms_norm(Type type, const void* x, const LowRank& added, const void* residual, const void* w,
              void* sum, void* y, const NormShape& shape, cudaStream_t stream);
// Rotates q in place; rotates k and copies k and v to their slots in pages.
struct RotateIntoPages {
  void* qkv;  // [rows, (heads + 2 kv_heads) * head_dim]; k and v stay as they are
  int heads, kv_heads, head_dim;  // head_dim a multiple of 64
  const std::int64_t* slots;
  void* keys;
  void* values;
};
void rotate_into_pages(Type type, const RotateIntoPages& into, const LowRank& added,
                       const Rotation& rotation, std::int64_t rows, cudaStream_t stream);

// Samples one token per row; see sampling.hpp.
struct Sampling {
  const void* logits;
  std::int64_t stride;
  float temperature;
  int top_k;
  float top_p, min_p;
  const std::int64_t* seeds;
  const std::int32_t* counters;
  std::int32_t* tokens;
  float* log_probs;
};
void sample(Type type, const Sampling& args, std::int64_t rows, int vocab, cudaStream_t stream);

}  // namespace mgpu::kernels
