#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/model/linear.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::model {

// One micro-batch on the device, and what all blocks share.
struct Context {
  const ModelConfig* config = nullptr;
  Tensor positions;  // int32 [tokens]
  Tensor cos, sin;   // fp32 [positions, head_dim / 2]
  ops::Sequences sequences;
  double adapter_scale = 1;
  double adapter_dropout = 0;
  std::uint64_t seed = 0;  // of this micro-batch
};

// What a block's backward wants. The input is kept by the caller.
struct BlockSaved {
  Tensor normed, normed_rstd;
  Tensor before_norm;  // q and k before their norms, with qk_norm
  Tensor q_rstd, k_rstd;
  Tensor qkv;  // turned
  ops::Attention attention;
  Tensor middle;  // after attention's residual
  Tensor post_normed, post_rstd;
  Tensor gate_up;
  LinearSaved qkv_low, o_low, gate_up_low, down_low;
};

// The norms of q and k, head by head, in place; with what their backward wants.
void norm_heads(Tensor& qkv, const Block& weights, const ModelConfig& c, BlockSaved* saved);

Tensor block_forward(const Tensor& x, const Block& weights, const Context& context, int layer,
                     BlockSaved& saved);

// Consumes `saved`: each tensor is let go as soon as it has served. Adds to `gradients` and gives
// the gradient of x.
Tensor block_backward(const Tensor& gy, const Tensor& x, const Block& weights,
                      const Block& gradients, const Context& context, int layer, BlockSaved saved);

}  // namespace mgpu::model
