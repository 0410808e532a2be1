#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Causal attention within sequences that are concatenated without padding.
namespace mgpu::ops {

using at::Tensor;

// The boundaries of a micro-batch's sequences.
struct Sequences {
  Tensor starts;       // int32 [sequences + 1] on the device
  Tensor host_starts;  // the same on the host
  std::int64_t count = 0;
  std::int64_t longest = 0;
  std::int64_t tokens = 0;
  bool equal = false;  // all sequences have the same length
  // Undefined if `equal`: the index of every token in the padded layout [sequences, longest].
  Tensor places;
  bool cudnn = false;  // on a GPU: cuDNN computes the attention, otherwise flash attention
};

struct Attention {
  Tensor out;  // [tokens, heads * head_dim]
  Tensor lse;
  Tensor first_state, second_state;  // what the backend's backward needs
};

struct HeadShape {
  std::int64_t heads, kv_heads, head_dim;
};

// Counts one more micro-batch with these sequences and sets Sequences::cudnn. Call it once per
// micro-batch, so that all layers, and a recomputed forward pass, use the same implementation.
// cuDNN is twice as fast as flash attention, but it needs a plan for every shape, supports only
// sequences of equal length here, and its backward pass adds in varying order. Not thread-safe.
void choose_attention(Sequences& sequences, const HeadShape& shape, at::Device device,
                      at::ScalarType dtype);

// `qkv` is [tokens, (heads + 2 kv_heads) * head_dim].
Attention attention(const Tensor& qkv, const HeadShape& shape, const Sequences& sequences);
// Returns the gradient of qkv; `g` is the gradient of Attention::out.
Tensor attention_backward(const Tensor& g, const Tensor& qkv, const Attention& saved,
                          const HeadShape& shape, const Sequences& sequences);

}  // namespace mgpu::ops
