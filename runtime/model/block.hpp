#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/head_norms.hpp"
#include "runtime/model/linear.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::model {

// What all blocks of a forward or backward pass share.
struct Context {
  const ModelConfig* config = nullptr;
  Tensor positions;  // int32 [tokens]
  Tensor cos, sin;   // fp32 [positions, head_dim / 2], the tables of the rotary embedding
  ops::Sequences sequences;
  double adapter_scale = 1;
  double adapter_dropout = 0;
  std::uint64_t seed = 0;      // of this micro-batch's dropout and noise
  double embedding_noise = 0;  // see TransformerOptions
};

ops::HeadShape head_shape(const ModelConfig& config);

// What block_forward saves for block_backward besides the block's input, which the caller keeps.
struct BlockSaved {
  Tensor normed, normed_rstd;      // the input's norm
  ops::HeadNormsSaved head_norms;  // with qk_norm
  Tensor qkv;                      // after the rotary embedding
  ops::Attention attention;
  Tensor after_attention;         // input + attention's output
  Tensor post_normed, post_rstd;  // the norm of after_attention
  Tensor gate_up;
  LinearSaved qkv_low, o_low, gate_up_low, down_low;
};

// Prepares q and k for attention, in place: the rotary embedding, after the heads' norms in
// families that have them. Saves what the backward needs unless `saved` is null.
void norm_and_rotate(Tensor& qkv, const Block& weights, const Context& context,
                     ops::HeadNormsSaved* saved);

// One transformer block:
//   h = x + o(attention(rotate(qkv(norm(x)))))
//   y = h + down(swiglu(gate_up(norm(h))))
// Returns y, [tokens, hidden].
Tensor block_forward(const Tensor& x, const Block& weights, const Context& context, int layer,
                     BlockSaved& saved);

// Saves the same again, without computing y.
void block_forward_again(const Tensor& x, const Block& weights, const Context& context, int layer,
                         BlockSaved& saved);

// The backward of block_forward for the same x; `gy` is the gradient of y. Adds the gradients of
// the weights to `gradients` and returns the gradient of x. Consumes `saved`: it frees each tensor
// after its last use.
Tensor block_backward(const Tensor& gy, const Tensor& x, const Block& weights,
                      const Block& gradients, const Context& context, int layer, BlockSaved saved);

}  // namespace mgpu::model
