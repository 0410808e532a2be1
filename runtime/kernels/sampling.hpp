#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Drawing the next token of many sequences at once.
namespace mgpu::ops {

using at::Tensor;

// The filters apply in this order, each to what the one before left; tokens that tie with the last
// one kept stay in.
struct Sampling {
  double temperature = 1;  // 0: the most likely token, the first of equals
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;  // of the largest probability
};

// Where the draws of each row come from, and where they go.
struct Draw {
  Tensor seeds;      // int64 [rows]
  Tensor counters;   // int32 [rows]: how many tokens the row's sequence has drawn before
  Tensor tokens;     // int32 [rows]: the result; -1 where the logits have no finite softmax
  Tensor log_probs;  // fp32 [rows]: the token's log softmax(logits / temperature) over the whole
                     // vocabulary, which is what training computes for it; at temperature 0 as at 1
};

// A row's draw depends on its logits, seed and counter alone, never on the other rows.
void sample(const Tensor& logits, const Sampling& sampling, const Draw& draw);

}  // namespace mgpu::ops
