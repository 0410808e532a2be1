#include "runtime/kernels/attention.hpp"

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "runtime/kernels/attention_layout.hpp"
#include "runtime/kernels/attention_plans.hpp"
#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/shared_beginnings.hpp"

namespace mgpu::ops {
namespace {

// cuDNN builds a plan for every new shape, which takes tens of milliseconds, so its sequences are
// padded to one of a few lengths (and see AttentionPlans). As above, no real token sees the
// padding.
constexpr std::int64_t kCudnnLengths = 64;

std::int64_t cudnn_length(const Sequences& s) {
  return (s.longest + kCudnnLengths - 1) / kCudnnLengths * kCudnnLengths;
}

Tensor to_cudnn(const Tensor& x, const Sequences& s) {
  const auto rows = x.view({s.count, s.longest, x.size(1), x.size(2)});
  const auto length = cudnn_length(s);
  if (length == s.longest) return rows.transpose(1, 2);
  Tensor padded = at::empty({s.count, length, x.size(1), x.size(2)}, x.options());
  padded.narrow(1, 0, s.longest).copy_(rows);
  padded.narrow(1, s.longest, length - s.longest).zero_();
  return padded.transpose(1, 2);
}

Tensor from_cudnn(const Tensor& x, const Sequences& s) {
  return x.transpose(1, 2)
      .narrow(1, 0, s.longest)
      .reshape({s.count * s.longest, x.size(1), x.size(3)});
}

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
  static AttentionPlans plans;  // of this process, as PyTorch's cache of them is
  const bool supported = device.is_cuda() && s.equal && s.beginnings.count == 0 && s.longest > 1 &&
                         dtype != at::kFloat && is_ampere_or_newer(device) &&
                         !at::globalContext().deterministicAlgorithms();
  const auto length = cudnn_length(s);
  s.cudnn = supported && plans.count({.sequences = s.count,
                                      .length = length,
                                      .padded = length != s.longest,
                                      .heads = shape.heads,
                                      .kv_heads = shape.kv_heads,
                                      .head_dim = shape.head_dim});
}

Attention attention(const Tensor& qkv, const HeadShape& shape, const Sequences& s) {
  if (s.beginnings.count > 0) return attention_with_beginnings(qkv, shape, s);
  const auto h = split(qkv, shape);
  if (!qkv.is_cuda()) return on_cpu(h, shape, s);
  if (!can_flash(qkv)) return memory_efficient(h, shape, s);
  if (s.cudnn) {
    auto result = at::_scaled_dot_product_cudnn_attention(
        to_cudnn(h.q, s), to_cudnn(h.k, s), to_cudnn(h.v, s), {}, true, 0.0, true, false);
    return {from_cudnn(std::get<0>(result), s).view({s.tokens, -1}), std::get<1>(result),
            std::get<6>(result), std::get<7>(result)};
  }
  auto [out, lse, state, unused, debug] = at::_flash_attention_forward(
      h.q, h.k, h.v, s.starts, s.starts, s.longest, s.longest, 0.0, true, false);
  return {out.view({s.tokens, -1}), lse, state, unused};
}

Tensor attention_backward(const Tensor& g, const Tensor& qkv, const Attention& saved,
                          const HeadShape& shape, const Sequences& s) {
  if (s.beginnings.count > 0) return attention_with_beginnings_backward(g, qkv, saved, shape, s);
  const auto h = split(qkv, shape);
  if (!qkv.is_cuda()) return on_cpu_backward(g, h, qkv, saved, shape, s);
  if (!can_flash(qkv)) return memory_efficient_backward(g, h, qkv, saved, shape, s);
  const auto by_head = [&](const Tensor& x) {
    return x.view({s.tokens, shape.heads, shape.head_dim});
  };
  if (s.cudnn) {
    auto [gq, gk, gv] = at::_scaled_dot_product_cudnn_attention_backward(
        to_cudnn(by_head(g), s), to_cudnn(h.q, s), to_cudnn(h.k, s), to_cudnn(h.v, s),
        to_cudnn(by_head(saved.out), s), saved.lse, saved.first_state, saved.second_state, {}, {},
        {}, cudnn_length(s), cudnn_length(s), 0.0, true);
    return pack(from_cudnn(gq, s), from_cudnn(gk, s), from_cudnn(gv, s), qkv, shape);
  }
  auto [gq, gk, gv] = at::_flash_attention_backward(
      by_head(g), h.q, h.k, h.v, by_head(saved.out), saved.lse, s.starts, s.starts, s.longest,
      s.longest, 0.0, true, saved.first_state, saved.second_state);
  return pack(gq, gk, gv, qkv, shape);
}

}  // namespace mgpu::ops
