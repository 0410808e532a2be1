#pragma once

#include "runtime/kernels/attention_layout.hpp"

// Attention in 16 bits on a GPU: by cuDNN in parts, and by flash attention.
namespace mgpu::ops {

// Of sequences at `starts`, int32 [sequences + 1] on the device.
Attention flash_attention(const Heads& h, const Tensor& starts, std::int64_t longest);
// `g` is the gradient of the output, [tokens, heads, head_dim].
Heads flash_attention_backward(const Tensor& g, const Heads& h, const Attention& saved,
                               const Tensor& starts, std::int64_t longest);

// Counts a micro-batch and sets Sequences::cudnn and the rest. `model` has the heads.
void divide_sequences(Sequences& sequences, const AttentionShape& model, at::Device device);
// Sequences::cudnn by cuDNN, the rest by flash attention.
Attention attention_in_parts(const Heads& h, const Sequences& sequences);
void attention_in_parts_backward(const Tensor& g, const Heads& h, const Attention& saved,
                                 const Sequences& sequences, const Heads& gradients);

}  // namespace mgpu::ops
