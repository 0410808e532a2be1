#pragma once

#include "runtime/kernels/attention_layout.hpp"

// One call of cuDNN for all sequences of a micro-batch, whatever their lengths. PyTorch's binding
// builds the plan for it anew in each call; here a plan serves all micro-batches of about its
// shape.
namespace mgpu::ops {

// Counts a micro-batch, and sets Sequences::packed if this build, the GPU and the cuDNN that
// PyTorch has loaded support it and there is a plan. Returns whether it is set. `model` has the
// heads.
bool pack_sequences(Sequences& sequences, const AttentionShape& model, at::Device device,
                    at::ScalarType type);

Attention packed_attention(const Heads& h, const PackedSequences& sequences);
// `g` is the gradient of the output, [tokens, heads, head_dim].
void packed_attention_backward(const Tensor& g, const Heads& h, const Attention& saved,
                               const PackedSequences& sequences, const Heads& gradients);

}  // namespace mgpu::ops
