#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/kernels/kernels.hpp"

// Products of few rows with large matrices on GPUs of compute capability 9.0, as in decoding.
namespace mgpu::kernels {

// y = x w^T + bias and low = x a^T in 16 bits, with sums in fp32: x is [rows, depth], w [outputs,
// depth], a [ranks, depth]. depth, outputs and ranks are multiples of 8. w, bias and a are read
// before the kernels before this have ended: between what writes them and this, there must be a
// product or another kernel that is not launched early.
struct FewRows {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;  // may be null
  void* y = nullptr;           // [rows, outputs]
  const void* a = nullptr;
  void* low = nullptr;  // [rows, ranks]
  std::int64_t ranks = 0;
  // w and the bias have rows for the gates of the outputs, then for the outputs: y = silu(gate) *
  // output, without ranks.
  bool gated = false;
  std::int64_t rows = 0, depth = 0, outputs = 0;
};
inline constexpr std::int64_t kMostFewRows = 256;

// How the work is distributed. A block has `groups` times `width` outputs, and `splits` blocks
// share the depth of the same outputs.
struct FewRowsPlan {
  int width = 96;  // one of kFewRowsWidths
  int groups = 1;
  int splits = 1;     // a power of 2, at most 8
  int stages = 0;     // tiles on their way to a block's shared memory; 0: as many as fit
  bool early = true;  // may begin before the kernel before it has ended
};
inline constexpr int kFewRowsWidths[] = {48, 64, 96, 128, 144, 192};

bool can_few_rows(const FewRows& product, const FewRowsPlan& plan);
void few_rows(Type type, const FewRows& product, const FewRowsPlan& plan, cudaStream_t stream);
}  // namespace mgpu::kernels
