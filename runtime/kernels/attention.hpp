#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Causal attention within sequences that lie end to end.
namespace mgpu::ops {

using at::Tensor;

// Where the sequences of a micro-batch lie, on the host and on the device.
struct Sequences {
  Tensor starts;       // int32 [sequences + 1] on the device
  Tensor host_starts;  // the same on the host
  std::int64_t count = 0;
  std::int64_t longest = 0;
  std::int64_t tokens = 0;
  bool equal = false;  // all as long as the longest
  // Only where rows are padded (CPU): the place of every token among [sequences, longest].
  Tensor places;
};

struct Attention {
  Tensor out;  // [tokens, heads * head_dim]
  Tensor lse;
  Tensor first_state, second_state;  // what the back-end wants back
};

struct HeadShape {
  std::int64_t heads, kv_heads, head_dim;
};

// qkv: [tokens, (heads + 2 kv_heads) * head_dim].
Attention attention(const Tensor& qkv, const HeadShape& shape, const Sequences& sequences);
// The gradient of qkv.
Tensor attention_backward(const Tensor& g, const Tensor& qkv, const Attention& saved,
                          const HeadShape& shape, const Sequences& sequences);

}  // namespace mgpu::ops
