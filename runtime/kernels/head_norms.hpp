#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/kernels/attention.hpp"

namespace mgpu::ops {

using at::Tensor;

// What Qwen3 does to each head of q and k before attention: its norm, then the rotary embedding.
struct HeadNorms {
  HeadShape shape;
  Tensor q, k;  // weights, [head_dim]
  double eps = 0;
};
struct Rotation {
  Tensor cos, sin;   // fp32 [positions, head_dim / 2]
  Tensor positions;  // int32 [tokens]
};
struct HeadNormsSaved {
  Tensor before;  // q and k before their norms, [tokens * (heads + kv_heads), head_dim]
  Tensor rstd;    // [tokens, heads + kv_heads] in fp32
};

// In place on qkv, [tokens, (heads + 2 kv_heads) * head_dim]. Saves what the backward needs unless
// `saved` is null.
void norm_heads_(Tensor& qkv, const HeadNorms& norms, const Rotation& rotation,
                 HeadNormsSaved* saved);
// In place on the gradient of qkv; adds the gradients of the weights to gq and gk in fp32, which
// may be undefined.
void norm_heads_backward_(Tensor& g_qkv, const HeadNorms& norms, const Rotation& rotation,
                          const HeadNormsSaved& saved, const Tensor& gq, const Tensor& gk);

}  // namespace mgpu::ops
