#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/kernels/head_norms.hpp"
#include "runtime/kernels/paged.hpp"

// LoRA for few rows, as in decoding. The adapters' products are so small that kernels of their own
// would mostly wait: a linear layer returns its output without them, and what uses the output adds
// them while it reads it.
namespace mgpu::ops {

// What is to be added to a linear layer's output: each term adds scale * low[:, column : column +
// rank] b^T to the outputs [begin, begin + size), where b is [size, rank]. The output is already
// rounded to its type, and the sum is rounded to it again. Terms do not overlap.
struct LowRank {
  struct Term {
    Tensor b;
    std::int64_t begin = 0, column = 0;
  };
  Tensor low;  // [rows, ranks]; undefined if there is nothing to add
  double scale = 1;
  std::vector<Term> terms;
};

// Whether our kernels can add `added` (whose `low` may be undefined) to a layer's output of `width`
// for the input x. Otherwise the functions below work too, but one product per term is slower than
// a product of all.
bool can_add_low_rank(const Tensor& x, const LowRank& added, std::int64_t width);

// Returns x w^T, plus `bias` in each row if it is defined, and x a^T if `a` is defined. The kernel
// may read w, bias and a before the work queued before has ended: between what writes them and
// this, there must be a product or another kernel that is not launched early, unless w was written
// just before and `w_is_new`.
std::pair<Tensor, Tensor> product_and_low(const Tensor& x, const Tensor& w, const Tensor& bias,
                                          const Tensor& a, bool w_is_new = false);

// swiglu() of x w^T plus bias, on the same condition.
Tensor swiglu_of_product(const Tensor& x, const Tensor& w, const Tensor& bias);

void add_low_rank_(const Tensor& y, const LowRank& added);

// The functions of the same names in ops.hpp after add_low_rank_(). The first argument may be
// changed.
Tensor swiglu(const Tensor& gate_up, const LowRank& added);
// Returns x + residual and its norm.
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const LowRank& added,
                                        const Tensor& residual, const Tensor& w, double eps);

// Rotates q in place, and puts k, rotated, and v in pages: rotate_() and put_in_pages() after
// add_low_rank_(). Afterwards k and v of qkv are not specified.
void rotate_into_pages(Tensor& qkv, const LowRank& added, const HeadShape& shape,
                       const Rotation& rotation, const Tensor& slots, const Pages& pages);

}  // namespace mgpu::ops
