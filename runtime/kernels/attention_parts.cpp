#include "runtime/kernels/attention_parts.hpp"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

namespace mgpu::ops {
namespace {

// The sequences of a part as views of [tokens, heads, head_dim], with dimensions [sequences,
// length, heads, head_dim].
Tensor rows_of(const Tensor& x, const CudnnPart& p) {
  return x.narrow(0, p.begin, p.tokens()).view({p.count, p.length, x.size(1), x.size(2)});
}

Tensor to_cudnn(const Tensor& x, const CudnnPart& p) {
  const auto rows = rows_of(x, p);
  if (p.computed == p.length) return rows.transpose(1, 2);
  Tensor padded = at::empty({p.count, p.computed, x.size(1), x.size(2)}, x.options());
  padded.narrow(1, 0, p.length).copy_(rows);
  padded.narrow(1, p.length, p.computed - p.length).zero_();
  return padded.transpose(1, 2);
}

// [sequences, length, heads, head_dim]
Tensor from_cudnn(const Tensor& x, const CudnnPart& p) {
  return x.transpose(1, 2).narrow(1, 0, p.length);
}

Heads select(const Heads& h, const Tensor& rows) {
  return {h.q.index_select(0, rows), h.k.index_select(0, rows), h.v.index_select(0, rows)};
}

template <class T>
Tensor on_device(const std::vector<T>& values, at::ScalarType type, at::Device device) {
  return at::from_blob(const_cast<T*>(values.data()),  // read only
                       {static_cast<std::int64_t>(values.size())}, at::TensorOptions(type))
      .to(device);
}

}  // namespace

void divide_sequences(Sequences& s, const AttentionShape& model, at::Device device) {
  static AttentionPlans plans;  // of this process, as PyTorch's cache of them is
  auto division = divide_attention(host_starts_of(s), model, plans);
  s.cudnn = std::move(division.cudnn);
  if (s.cudnn.empty() || division.rest.empty()) return;
  s.rest = on_device(division.rest, at::kLong, device);
  s.rest_starts = on_device(division.rest_starts, at::kInt, device);
  s.rest_longest = division.rest_longest;
}

Attention flash_attention(const Heads& h, const Tensor& starts, std::int64_t longest) {
  auto [out, lse, state, unused, debug] = at::_flash_attention_forward(
      h.q, h.k, h.v, starts, starts, longest, longest, 0.0, true, false);
  return {.out = out.view({h.q.size(0), -1}),
          .lse = lse,
          .first_state = state,
          .second_state = unused,
          .parts = {}};
}

Heads flash_attention_backward(const Tensor& g, const Heads& h, const Attention& saved,
                               const Tensor& starts, std::int64_t longest) {
  auto [gq, gk, gv] = at::_flash_attention_backward(
      g, h.q, h.k, h.v, saved.out.view_as(g), saved.lse, starts, starts, longest, longest, 0.0,
      true, saved.first_state, saved.second_state);
  return {gq, gk, gv};
}

Attention attention_in_parts(const Heads& h, const Sequences& s) {
  Attention result;
  for (const auto& part : s.cudnn) {
    auto all = at::_scaled_dot_product_cudnn_attention(
        to_cudnn(h.q, part), to_cudnn(h.k, part), to_cudnn(h.v, part), {}, true, 0.0, true, false);
    const Tensor out = from_cudnn(std::get<0>(all), part);
    result.parts.push_back({std::get<1>(all), std::get<6>(all), std::get<7>(all)});
    if (part.tokens() == s.tokens) {
      result.out = out.reshape({s.tokens, -1});
      return result;
    }
    if (!result.out.defined())
      result.out = at::empty({s.tokens, h.q.size(1) * h.q.size(2)}, h.q.options());
    rows_of(result.out.view(h.q.sizes()), part).copy_(out);
  }
  if (!s.rest.defined()) return result;
  const auto rest = flash_attention(select(h, s.rest), s.rest_starts, s.rest_longest);
  result.out.index_copy_(0, s.rest, rest.out);
  result.lse = rest.lse;
  result.first_state = rest.first_state;
  result.second_state = rest.second_state;
  return result;
}

void attention_in_parts_backward(const Tensor& g, const Heads& h, const Attention& saved,
                                 const Sequences& s, const Heads& gradients) {
  const Tensor out = saved.out.view(h.q.sizes());
  for (std::size_t i = 0; i < s.cudnn.size(); ++i) {
    const auto& part = s.cudnn[i];
    const auto& state = saved.parts[i];
    auto [gq, gk, gv] = at::_scaled_dot_product_cudnn_attention_backward(
        to_cudnn(g, part), to_cudnn(h.q, part), to_cudnn(h.k, part), to_cudnn(h.v, part),
        to_cudnn(out, part), state.lse, state.first_state, state.second_state, {}, {}, {},
        part.computed, part.computed, 0.0, true);
    rows_of(gradients.q, part).copy_(from_cudnn(gq, part));
    rows_of(gradients.k, part).copy_(from_cudnn(gk, part));
    rows_of(gradients.v, part).copy_(from_cudnn(gv, part));
  }
  if (!s.rest.defined()) return;
  Attention rest = saved;
  rest.out = saved.out.index_select(0, s.rest);
  const auto of_rest = flash_attention_backward(g.index_select(0, s.rest), select(h, s.rest), rest,
                                                s.rest_starts, s.rest_longest);
  Tensor(gradients.q).index_copy_(0, s.rest, of_rest.q);
  Tensor(gradients.k).index_copy_(0, s.rest, of_rest.k);
  Tensor(gradients.v).index_copy_(0, s.rest, of_rest.v);
}

}  // namespace mgpu::ops
