#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/kernels/sampling_filters.hpp"

// Samples the next token of many sequences at once.
namespace mgpu::ops {

using at::Tensor;

// The random state of each row and where its result goes.
struct Draw {
  Tensor seeds;     // int64 [rows]
  Tensor counters;  // int32 [rows]: the number of tokens that the sequence has already sampled
  Tensor tokens;    // int32 [rows]: the result; -1 where the logits have no finite softmax
  // fp32 [rows]: the token's log softmax(logits / temperature) over the whole vocabulary, without
  // the filters. Training computes the same value. At temperature 0 it is computed as at 1.
  Tensor log_probs;
};

// Samples one token per row. A row's token depends only on its logits, seed and counter, never on
// other rows.
void sample(const Tensor& logits, const Sampling& sampling, const Draw& draw);

}  // namespace mgpu::ops
