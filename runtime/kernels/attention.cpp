#include "runtime/kernels/attention.hpp"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "runtime/kernels/attention_layout.hpp"
#include "runtime/kernels/attention_packed.hpp"
#include "runtime/kernels/attention_parts.hpp"
#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/shared_beginnings.hpp"

namespace mgpu::ops {
namespace {

Tensor pack(const Tensor& gq, const Tensor& gk, const Tensor& gv, const Tensor& like,
            const HeadShape& s) {
  Tensor packed = at::empty_like(like);
  const auto to = split(packed, s);
  to.q.copy_(gq.view_as(to.q));
  to.k.copy_(gk.view_as(to.k));
  to.v.copy_(gv.view_as(to.v));
  return packed;
}

Attention on_cpu(const Heads& h, const HeadShape& shape, const Sequences& s) {
  const auto times = shape.heads / shape.kv_heads;
  const auto q = to_dense(h.q, s);
  const auto k = repeat_heads(to_dense(h.k, s), times);
  const auto v = repeat_heads(to_dense(h.v, s), times);
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true);
  return {from_dense(out, s).reshape({s.tokens, -1}), lse, {}, {}};
}

Tensor on_cpu_backward(const Tensor& g, const Heads& h, const Tensor& qkv, const Attention& saved,
                       const HeadShape& shape, const Sequences& s) {
  const auto times = shape.heads / shape.kv_heads;
  const auto q = to_dense(h.q, s);
  const auto k = repeat_heads(to_dense(h.k, s), times);
  const auto v = repeat_heads(to_dense(h.v, s), times);
  const auto by_head = [&](const Tensor& x) {
    return to_dense(x.view({s.tokens, shape.heads, shape.head_dim}), s);
  };
  auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      by_head(g), q, k, v, by_head(saved.out), saved.lse, 0.0, true);
  return pack(from_dense(gq, s), from_dense(fold_heads(gk, times), s),
              from_dense(fold_heads(gv, times), s), qkv, shape);
}

Attention memory_efficient(const Heads& h, const HeadShape& shape, const Sequences& s) {
  const auto times = shape.heads / shape.kv_heads;
  auto [out, lse, seed, offset] = at::_scaled_dot_product_efficient_attention(
      to_dense(h.q, s), repeat_heads(to_dense(h.k, s), times),
      repeat_heads(to_dense(h.v, s), times), {}, true, 0.0, true);
  return {from_dense(out, s).reshape({s.tokens, -1}), lse, seed, offset};
}

Tensor memory_efficient_backward(const Tensor& g, const Heads& h, const Tensor& qkv,
                                 const Attention& saved, const HeadShape& shape,
                                 const Sequences& s) {
  const auto times = shape.heads / shape.kv_heads;
  const auto by_head = [&](const Tensor& x) {
    return to_dense(x.view({s.tokens, shape.heads, shape.head_dim}), s);
  };
  auto [gq, gk, gv, gbias] = at::_scaled_dot_product_efficient_attention_backward(
      by_head(g), to_dense(h.q, s), repeat_heads(to_dense(h.k, s), times),
      repeat_heads(to_dense(h.v, s), times), {}, by_head(saved.out), saved.lse, saved.first_state,
      saved.second_state, 0.0, {true, true, true, false}, true);
  return pack(from_dense(gq, s), from_dense(fold_heads(gk, times), s),
              from_dense(fold_heads(gv, times), s), qkv, shape);
}

}  // namespace

void choose_attention(Sequences& s, const HeadShape& shape, at::Device device,
                      at::ScalarType dtype) {
  s.packed.reset();
  s.cudnn.clear();
  s.rest = s.rest_starts = Tensor();
  if (!device.is_cuda() || s.beginnings.count > 0 || s.longest <= 1 || dtype == at::kFloat ||
      !is_ampere_or_newer(device) || at::globalContext().deterministicAlgorithms())
    return;
  const AttentionShape model{
      .heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
  const bool needs_no_padding = s.equal && s.longest % kAttentionStep == 0;
  if (needs_no_padding) divide_sequences(s, model, device);
  if (s.cudnn.empty() && !pack_sequences(s, model, device, dtype) && !needs_no_padding)
    divide_sequences(s, model, device);
}

Attention attention(const Tensor& qkv, const HeadShape& shape, const Sequences& s) {
  if (s.beginnings.count > 0) return attention_with_beginnings(qkv, shape, s);
  const auto h = split(qkv, shape);
  if (!qkv.is_cuda()) return on_cpu(h, shape, s);
  if (!can_flash(qkv)) return memory_efficient(h, shape, s);
  if (s.packed) return packed_attention(h, *s.packed);
  if (!s.cudnn.empty()) return attention_in_parts(h, s);
  return flash_attention(h, s.starts, s.longest);
}

Tensor attention_backward(const Tensor& g, const Tensor& qkv, const Attention& saved,
                          const HeadShape& shape, const Sequences& s) {
  if (s.beginnings.count > 0) return attention_with_beginnings_backward(g, qkv, saved, shape, s);
  const auto h = split(qkv, shape);
  if (!qkv.is_cuda()) return on_cpu_backward(g, h, qkv, saved, shape, s);
  if (!can_flash(qkv)) return memory_efficient_backward(g, h, qkv, saved, shape, s);
  if (s.packed || !s.cudnn.empty()) {
    Tensor gradient = at::empty_like(qkv);
    const auto to = split(gradient, shape);
    if (s.packed)
      packed_attention_backward(g.view_as(h.q), h, saved, *s.packed, to);
    else
      attention_in_parts_backward(g.view_as(h.q), h, saved, s, to);
    return gradient;
  }
  const auto gradients = flash_attention_backward(g.view_as(h.q), h, saved, s.starts, s.longest);
  return pack(gradients.q, gradients.k, gradients.v, qkv, shape);
}

}  // namespace mgpu::ops
