#pragma once

#include "runtime/kernels/attention.hpp"

// attention() and its backward for sequences with shared beginnings. Every token attends to its own
// sequence, and the tokens of branches to their beginnings; the two results are joined by their
// log-sum-exps, which is exact.
namespace mgpu::ops {

Attention attention_with_beginnings(const Tensor& qkv, const HeadShape& shape,
                                    const Sequences& sequences);
Tensor attention_with_beginnings_backward(const Tensor& g, const Tensor& qkv,
                                          const Attention& saved, const HeadShape& shape,
                                          const Sequences& sequences);

}  // namespace mgpu::ops
