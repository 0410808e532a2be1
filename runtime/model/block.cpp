#include "runtime/model/block.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "rendezvous/base/seeds.hpp"
#include "runtime/kernels/ops.hpp"

namespace mgpu::model {
namespace {

AdapterUse adapter_use(const Context& c, int layer, Product product) {
  const auto which =
      static_cast<std::uint64_t>(layer) * kProducts + static_cast<std::uint64_t>(product);
  return {c.adapter_scale, c.adapter_dropout, rendezvous::derive_seed(c.seed, which) >> 1};
}

std::int64_t qk_heads(const ModelConfig& c) {
  return c.heads + c.kv_heads;
}

// The heads [from, from + count) of every token, one head per row.
Tensor heads_of(const Tensor& qkv, std::int64_t from, std::int64_t count, std::int64_t head_dim) {
  return qkv.narrow(1, from * head_dim, count * head_dim).reshape({-1, head_dim});
}

void norm_heads_backward(Tensor& g_qkv, const Block& weights, const Block& gradients,
                         const ModelConfig& c, const BlockSaved& saved) {
  const auto norm = [&](std::int64_t from, std::int64_t count, const Tensor& w, const Tensor& rstd,
                        const Tensor& gw) {
    const auto g = heads_of(g_qkv, from, count, c.head_dim);
    const auto x = heads_of(saved.before_norm, from, count, c.head_dim);
    const auto gx = ops::rms_norm_backward(g, x, w, rstd, {}, gw);
    g_qkv.narrow(1, from * c.head_dim, count * c.head_dim).copy_(gx.view({g_qkv.size(0), -1}));
  };
  norm(0, c.heads, weights.q_norm, saved.q_rstd, gradients.q_norm);
  norm(c.heads, c.kv_heads, weights.k_norm, saved.k_rstd, gradients.k_norm);
}

}  // namespace

ops::HeadShape head_shape(const ModelConfig& c) {
  return {c.heads, c.kv_heads, c.head_dim};
}

void norm_heads(Tensor& qkv, const Block& weights, const ModelConfig& c, BlockSaved* saved) {
  if (saved != nullptr) {
    saved->before_norm = qkv.narrow(1, 0, qk_heads(c) * c.head_dim).contiguous();
  }
  const auto norm = [&](std::int64_t from, std::int64_t count, const Tensor& w) {
    auto [y, rstd] = ops::rms_norm(heads_of(qkv, from, count, c.head_dim), w, c.norm_eps);
    qkv.narrow(1, from * c.head_dim, count * c.head_dim).copy_(y.view({qkv.size(0), -1}));
    return rstd;
  };
  const auto q_rstd = norm(0, c.heads, weights.q_norm);
  const auto k_rstd = norm(c.heads, c.kv_heads, weights.k_norm);
  if (saved != nullptr) {
    saved->q_rstd = q_rstd;
    saved->k_rstd = k_rstd;
  }
}

Tensor block_forward(const Tensor& x, const Block& weights, const Context& context, int layer,
                     BlockSaved& saved) {
  const auto& c = *context.config;
  // h = x + o(attention(rotate(qkv(norm(x)))))
  std::tie(saved.normed, saved.normed_rstd) = ops::rms_norm(x, weights.input_norm, c.norm_eps);
  saved.qkv =
      linear(saved.normed, weights.qkv, adapter_use(context, layer, Product::qkv), saved.qkv_low);
  if (c.qk_norm) norm_heads(saved.qkv, weights, c, &saved);
  ops::rotate_(saved.qkv, qk_heads(c), c.head_dim, context.cos, context.sin, context.positions,
               false);
  saved.attention = ops::attention(saved.qkv, head_shape(c), context.sequences);
  const Tensor o =
      linear(saved.attention.out, weights.o, adapter_use(context, layer, Product::o), saved.o_low);
  // add_rms_norm computes h and norm(h) together.
  std::tie(saved.after_attention, saved.post_normed, saved.post_rstd) =
      ops::add_rms_norm(o, x, weights.post_norm, c.norm_eps);
  // y = h + down(swiglu(gate_up(norm(h))))
  saved.gate_up = linear(saved.post_normed, weights.gate_up,
                         adapter_use(context, layer, Product::gate_up), saved.gate_up_low);
  Tensor y = linear(ops::swiglu(saved.gate_up), weights.down,
                    adapter_use(context, layer, Product::down), saved.down_low);
  return y.add_(saved.after_attention);
}

Tensor block_backward(const Tensor& gy, const Tensor& x, const Block& weights,
                      const Block& gradients, const Context& context, int layer, BlockSaved saved) {
  const auto& c = *context.config;
  // The forward's lines in reverse order. std::exchange frees a saved tensor after its last use.
  // The swiglu output was not saved: it is cheap to compute again.
  Tensor g;
  {
    const Tensor g_act =
        linear_backward(gy, ops::swiglu(saved.gate_up), weights.down, gradients.down,
                        adapter_use(context, layer, Product::down), saved.down_low);
    g = ops::swiglu_backward(g_act, std::exchange(saved.gate_up, {}));
  }
  g = linear_backward(g, saved.post_normed, weights.gate_up, gradients.gate_up,
                      adapter_use(context, layer, Product::gate_up), saved.gate_up_low);
  // Both residual branches meet here: gy goes past the MLP.
  const Tensor g_after_attention =
      ops::rms_norm_backward(g, std::exchange(saved.after_attention, {}), weights.post_norm,
                             saved.post_rstd, gy, gradients.post_norm);
  saved.post_normed = Tensor();
  g = linear_backward(g_after_attention, saved.attention.out, weights.o, gradients.o,
                      adapter_use(context, layer, Product::o), saved.o_low);
  g = ops::attention_backward(g, std::exchange(saved.qkv, {}), std::exchange(saved.attention, {}),
                              head_shape(c), context.sequences);
  ops::rotate_(g, qk_heads(c), c.head_dim, context.cos, context.sin, context.positions, true);
  if (c.qk_norm) norm_heads_backward(g, weights, gradients, c, saved);
  g = linear_backward(g, saved.normed, weights.qkv, gradients.qkv,
                      adapter_use(context, layer, Product::qkv), saved.qkv_low);
  return ops::rms_norm_backward(g, x, weights.input_norm, saved.normed_rstd, g_after_attention,
                                gradients.input_norm);
}

}  // namespace mgpu::model
