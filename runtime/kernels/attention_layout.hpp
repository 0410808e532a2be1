#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/kernels/attention.hpp"

// The layouts of tensors that the sources of attention() share.
namespace mgpu::ops {

struct Heads {
  Tensor q, k, v;  // [tokens, heads, head_dim] views
};
Heads split(const Tensor& qkv, const HeadShape& shape);

std::span<const std::int32_t> host_starts_of(const Sequences& sequences);  // [sequences + 1]

// Turns [tokens, heads, head_dim] into [sequences, heads, longest, head_dim]. Short sequences are
// padded with zeros at their end, where the causal mask hides them from all real tokens.
Tensor to_dense(const Tensor& x, const Sequences& sequences);
Tensor from_dense(const Tensor& x, const Sequences& sequences);

// Repeats each head of [sequences, heads, tokens, head_dim].
Tensor repeat_heads(const Tensor& x, std::int64_t times);
// The backward of repeat_heads: sums the gradients of the copies.
Tensor fold_heads(const Tensor& g, std::int64_t times);

// Flash attention needs Ampere, and computes in 16 bits only. Otherwise, in fp32 for parity tests
// and in fp16 on older GPUs: the memory-efficient kernel on padded sequences.
bool can_flash(const Tensor& qkv);

}  // namespace mgpu::ops
