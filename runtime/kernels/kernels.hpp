#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Our CUDA kernels, on raw pointers and a stream. Arithmetic is in fp32; rows are contiguous unless
// a stride is given. Widths are multiples of 8 and pointers lie on 16 bytes: see vectorizable().
// Sums over rows are made in a fixed order, so that a run repeats bit for bit.
namespace mgpu::kernels {

enum class Type { f32, bf16 };

inline bool vectorizable(const void* p, std::int64_t width) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && width % 8 == 0;
}

struct NormShape {
  std::int64_t rows = 0, width = 0;  // width at most kWidestNorm for backward
  double eps = 0;
};
inline constexpr std::int64_t kWidestNorm = 8192;

// y = w * (x [+ residual]) / rms, rstd [rows]. With a residual the sum is written too.
void rms_norm(Type type, const void* x, const void* residual, const void* w, void* sum, void* y,
              float* rstd, const NormShape& shape, cudaStream_t stream);

// gx = d/dx [+ residual]; gw += d/dw in fp32 unless null. Scratch is norm_scratch(width) floats.
std::int64_t norm_scratch(std::int64_t width);
void rms_norm_backward(Type type, const void* gy, const void* x, const void* w, const float* rstd,
                       const void* residual, void* gx, float* gw, float* scratch,
                       const NormShape& shape, cudaStream_t stream);

// Turns `heads` heads of head_dim at the start of every row, in place. cos and sin are
// [positions, head_dim / 2]; `back` turns the other way.
struct RotateShape {
  std::int64_t rows = 0, stride = 0, heads = 0, head_dim = 0;  // head_dim a multiple of 16
};
void rotate(Type type, void* x, const float* cos, const float* sin, const std::int32_t* positions,
            bool back, const RotateShape& shape, cudaStream_t stream);

// gate_up [rows, 2 width] -> silu(gate) * up [rows, width].
void swiglu(Type type, const void* gate_up, void* out, std::int64_t rows, std::int64_t width,
            cudaStream_t stream);
void swiglu_backward(Type type, const void* g, const void* gate_up, void* out, std::int64_t rows,
                     std::int64_t width, cudaStream_t stream);

// Losses, whether the target is the largest, and entropies of rows of logits [rows, vocab], all of
// the logits times `sharpness`. With `overwrite` the logits become the gradient of `scale` times
// the loss or, with slopes of each row, of entropy_slopes * entropy - slopes * loss. Targets below
// 0 give 0 everywhere.
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

// AdamW as torch does it: decay first. `value` gets the rounded master where it is not null. clip,
// skip and count (steps taken, this one included) are device scalars; nothing changes if skip is 1.
struct AdamW {
  float lr, beta1, beta2, eps, decay;
};
void adamw(const AdamW& a, float* master, void* value, Type grad_type, const void* grad,
           Type moment_type, void* first, void* second, const float* clip, const float* skip,
           const float* count, std::int64_t n, cudaStream_t stream);

// The same with moments in codes of 8 bits: value = levels[code] * scales[block], the scale the
// largest magnitude of its block of 256. The first block lacks `lead` elements at its beginning.
// A table is 256 ascending levels and 256 borders between each and the next. Buffers may lie at
// any multiple of their elements; at multiples of 16 bytes, and with a lead that is one of 8
// elements, it is fast.
struct CodedMoment {
  std::uint8_t* codes;
  float* scales;
  const float* table;
};
void adamw_8bit(const AdamW& a, float* master, void* value, Type grad_type, const void* grad,
                const CodedMoment& first, const CodedMoment& second, std::int64_t lead,
                const float* clip, const float* skip, const float* count, std::int64_t n,
                cudaStream_t stream);

// Numbers from NF4 codes, two a byte; n a multiple of 64. Scales of blocks of 64: plain, or
// levels[indices[b]] * outer[b / 256] + *offset.
struct Nf4Scales {
  const float* plain = nullptr;  // used if not null
  const std::uint8_t* indices = nullptr;
  const float* levels = nullptr;
  const float* outer = nullptr;
  const float* offset = nullptr;
};
void nf4_dequantize(Type type, const std::uint8_t* codes, const Nf4Scales& scales, void* out,
                    std::int64_t n, cudaStream_t stream);

// Attention of one query a sequence over keys and values in pages of 16 tokens, see paged.hpp. With
// several splits, parts are kept in fp32: values [sequences * heads * splits, head_dim], the others
// [sequences * heads * splits].
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
};
bool paged_attention_supports(int heads_per_key, int head_dim);
void paged_attention(Type type, const PagedAttention& a, int heads_per_key, int head_dim,
                     std::int64_t sequences, cudaStream_t stream);
// Its way for bf16, on tensor cores.
void paged_attention_bf16(const PagedAttention& a, int heads_per_key, int head_dim,
                          std::int64_t sequences, cudaStream_t stream);

// Keys and values of rows into their slots. Strides and widths are in units of 16 bytes; a row's
// values lie behind its keys.
struct PagedCopy {
  const uint4* keys_from;
  std::int64_t stride;  // between rows
  int width;            // of a row's keys, and of its values
  const std::int64_t* slots;
  uint4* keys;
  uint4* values;
};
void put_in_pages(const PagedCopy& copy, std::int64_t rows, cudaStream_t stream);

// Draws one token a row, see sampling.hpp.
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
