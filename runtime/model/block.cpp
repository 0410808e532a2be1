#include "runtime/model/block.hpp"

#include <ATen/ops/add.h>

#include <utility>

#include "rendezvous/base/seeds.hpp"
#include "runtime/kernels/ops.hpp"

namespace mgpu::model {

ops::HeadShape head_shape(const ModelConfig& c) {
  return {c.heads, c.kv_heads, c.head_dim};
}

namespace {

AdapterUse adapter_use(const Context& c, int layer, Product product) {
  const auto which =
      static_cast<std::uint64_t>(layer) * kProducts + static_cast<std::uint64_t>(product);
  return {c.adapter_scale, c.adapter_dropout, rendezvous::derive_seed(c.seed, which) >> 1};
}

ops::Rotation rotation_of(const Context& context) {
  return {context.cos, context.sin, context.positions};
}

void rotate(Tensor& qkv, const Context& context, bool back) {
  const auto& c = *context.config;
  ops::rotate_(qkv, c.heads + c.kv_heads, c.head_dim, context.cos, context.sin, context.positions,
               back);
}

ops::HeadNorms head_norms(const ModelConfig& c, const Block& weights) {
  return {head_shape(c), weights.q_norm, weights.k_norm, c.norm_eps};
}

// block_forward up to gate_up.
void forward_to_gate_up(const Tensor& x, const Block& weights, const Context& context, int layer,
                        BlockSaved& saved) {
  const auto& c = *context.config;
  // h = x + o(attention(rotate(qkv(norm(x)))))
  std::tie(saved.normed, saved.normed_rstd) = ops::rms_norm(x, weights.input_norm, c.norm_eps);
  saved.qkv =
      linear(saved.normed, weights.qkv, adapter_use(context, layer, Product::qkv), saved.qkv_low);
  norm_and_rotate(saved.qkv, weights, context, &saved.head_norms);
  saved.attention = ops::attention(saved.qkv, head_shape(c), context.sequences);
  const Tensor o =
      linear(saved.attention.out, weights.o, adapter_use(context, layer, Product::o), saved.o_low);
  // add_rms_norm computes h and norm(h) together.
  std::tie(saved.after_attention, saved.post_normed, saved.post_rstd) =
      ops::add_rms_norm(o, x, weights.post_norm, c.norm_eps);
  saved.gate_up = linear(saved.post_normed, weights.gate_up,
                         adapter_use(context, layer, Product::gate_up), saved.gate_up_low);
}

// The input of `down`, quantized while it is written if `down` multiplies in fp8.
ops::WithFp8 activated(const Tensor& gate_up, const Linear& down, const AdapterUse& use) {
  if (multiplies_in_fp8(down, use, gate_up)) return ops::swiglu_with_fp8(gate_up);
  return {ops::swiglu(gate_up), {}};
}

// The gradient of gate_up, the same. `g` becomes the input of `down`.
ops::WithFp8 activated_backward_(Tensor& g, const Tensor& gate_up, const Linear& weights,
                                 const AdapterUse& use) {
  if (multiplies_in_fp8(weights, use, gate_up)) return ops::swiglu_backward_with_fp8_(g, gate_up);
  return {ops::swiglu_backward_(g, gate_up), {}};
}

}  // namespace

void norm_and_rotate(Tensor& qkv, const Block& weights, const Context& context,
                     ops::HeadNormsSaved* saved) {
  const auto& c = *context.config;
  if (c.qk_norm) {
    ops::norm_heads_(qkv, head_norms(c, weights), rotation_of(context), saved);
  } else {
    rotate(qkv, context, false);
  }
}

Tensor block_forward(const Tensor& x, const Block& weights, const Context& context, int layer,
                     BlockSaved& saved) {
  forward_to_gate_up(x, weights, context, layer, saved);
  // y = h + down(swiglu(gate_up(norm(h))))
  const auto down = adapter_use(context, layer, Product::down);
  const auto [act, act_in_fp8] = activated(saved.gate_up, weights.down, down);
  Tensor y = linear(act, weights.down, down, saved.down_low, act_in_fp8);
  return y.add_(saved.after_attention);
}

void block_forward_again(const Tensor& x, const Block& weights, const Context& context, int layer,
                         BlockSaved& saved) {
  forward_to_gate_up(x, weights, context, layer, saved);
  if (weights.down.adapters.empty()) return;
  reduce(ops::swiglu(saved.gate_up), weights.down, adapter_use(context, layer, Product::down),
         saved.down_low);
}

Tensor block_backward(const Tensor& gy, const Tensor& x, const Block& weights,
                      const Block& gradients, const Context& context, int layer, BlockSaved saved) {
  const auto& c = *context.config;
  // The forward's lines in reverse order. std::exchange frees a saved tensor after its last use.
  // The swiglu output was not saved: it is computed again, in place of its own gradient.
  const auto down = adapter_use(context, layer, Product::down);
  Tensor act = input_gradient(gy, weights.down, gradients.down, down, saved.down_low);
  const auto gate_up = adapter_use(context, layer, Product::gate_up);
  auto [g, g_in_fp8] =
      activated_backward_(act, std::exchange(saved.gate_up, {}), weights.gate_up, gate_up);
  add_gradients(gy, std::exchange(act, {}), weights.down, gradients.down, down, saved.down_low);
  g = linear_backward(g, saved.post_normed, weights.gate_up, gradients.gate_up, gate_up,
                      saved.gate_up_low, std::exchange(g_in_fp8, {}));
  // Both residual branches meet here: gy goes past the MLP.
  const Tensor g_after_attention =
      ops::rms_norm_backward(g, std::exchange(saved.after_attention, {}), weights.post_norm,
                             saved.post_rstd, gy, gradients.post_norm);
  saved.post_normed = Tensor();
  g = linear_backward(g_after_attention, saved.attention.out, weights.o, gradients.o,
                      adapter_use(context, layer, Product::o), saved.o_low);
  g = ops::attention_backward(g, std::exchange(saved.qkv, {}), std::exchange(saved.attention, {}),
                              head_shape(c), context.sequences);
  if (c.qk_norm) {
    ops::norm_heads_backward_(g, head_norms(c, weights), rotation_of(context), saved.head_norms,
                              gradients.q_norm, gradients.k_norm);
  } else {
    rotate(g, context, true);
  }
  g = linear_backward(g, saved.normed, weights.qkv, gradients.qkv,
                      adapter_use(context, layer, Product::qkv), saved.qkv_low);
  return ops::rms_norm_backward(g, x, weights.input_norm, saved.normed_rstd, g_after_attention,
                                gradients.input_norm);
}

}  // namespace mgpu::model
