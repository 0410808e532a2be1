#include "runtime/kernels/shared_beginnings.hpp"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <limits>

#include "runtime/kernels/attention_layout.hpp"

namespace mgpu::ops {
namespace {

// What some queries find in some keys.
struct Found {
  Tensor out;  // [queries, heads, head_dim]
  Tensor lse;  // fp32 [heads, queries]
};

// The memory-efficient kernel pads each row of log-sum-exps to a multiple of this.
constexpr std::int64_t kEfficientRows = 32;

bool is_flash(const Tensor& qkv) {
  return qkv.is_cuda() && can_flash(qkv);
}

// Flash attention has another layout of log-sum-exps if no sequence is longer than one token.
constexpr std::int64_t kLeastLongest = 2;

Sequences without_beginnings(const Sequences& s, bool flash) {
  Sequences plain = s;
  plain.beginnings = {};
  plain.packed.reset();
  plain.cudnn.clear();
  if (flash) plain.longest = std::max(kLeastLongest, s.longest);
  return plain;
}

// The log-sum-exps of attention() as [heads, tokens].
Tensor lse_by_token(const Tensor& lse, const Sequences& s) {
  return from_dense(lse.narrow(2, 0, s.longest).unsqueeze(3), s).squeeze(2).t();
}

// The inverse of lse_by_token: padding queries get a value, because their weights must be finite.
Tensor lse_of_backend(const Tensor& lse, const Sequences& s) {
  const auto dense = to_dense(lse.t().unsqueeze(2), s).squeeze(3);
  if (!lse.is_cuda()) return dense;
  const auto surplus = (kEfficientRows - s.longest % kEfficientRows) % kEfficientRows;
  return at::constant_pad_nd(dense, {0, surplus}, std::numeric_limits<double>::infinity())
      .contiguous();
}

// The queries and keys of one beginning.
struct Share {
  std::int64_t key, keys, query, queries;  // begin and count, in tokens of the micro-batch

  Tensor keys_of(const Tensor& x) const { return dense(x.narrow(0, key, keys)); }
  Tensor queries_of(const Tensor& x) const { return dense(x.narrow(0, query, queries)); }

  // [tokens, heads, head_dim] -> [1, heads, tokens, head_dim]
  static Tensor dense(const Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }
  static Tensor rows(const Tensor& x) { return x.squeeze(0).transpose(0, 1); }
};

template <class F>
void for_each_share(const SharedBeginnings& b, F f) {
  for (std::size_t i = 0; i + 1 < b.starts.size(); ++i)
    f(Share{b.starts[i], b.starts[i + 1] - b.starts[i], b.tokens + b.branch_starts[i],
            b.branch_starts[i + 1] - b.branch_starts[i]});
}

Found attend_to_share(const Heads& h, std::int64_t times, const Share& share) {
  const auto q = share.queries_of(h.q);
  const auto k = repeat_heads(share.keys_of(h.k), times);
  const auto v = repeat_heads(share.keys_of(h.v), times);
  if (!q.is_cuda()) {
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, false);
    return {Share::rows(out), lse.squeeze(0)};
  }
  auto [out, lse, seed, offset] =
      at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0.0, false);
  return {Share::rows(out), lse.squeeze(0).narrow(1, 0, share.queries)};
}

// What the tokens of all branches find in their beginnings.
Found attend_to_beginnings(const Heads& h, const HeadShape& shape, const SharedBeginnings& b) {
  const auto queries = h.q.size(0) - b.tokens;
  if (is_flash(h.q)) {
    auto [out, lse, state, unused, debug] = at::_flash_attention_forward(
        h.q.narrow(0, b.tokens, queries), h.k.narrow(0, 0, b.tokens), h.v.narrow(0, 0, b.tokens),
        b.device_branch_starts, b.device_starts, std::max(kLeastLongest, b.longest_branches),
        b.longest, 0.0, false, false);
    return {out, lse};
  }
  const Found all{at::empty({queries, shape.heads, shape.head_dim}, h.q.options()),
                  at::empty({shape.heads, queries}, h.q.options().dtype(at::kFloat))};
  for_each_share(b, [&](const Share& share) {
    const auto one = attend_to_share(h, shape.heads / shape.kv_heads, share);
    const auto begin = share.query - b.tokens;
    all.out.narrow(0, begin, share.queries).copy_(one.out);
    all.lse.narrow(1, begin, share.queries).copy_(one.lse);
  });
  return all;
}

// Adds what the same queries found in other keys: `own` becomes what they find in all of them.
void join(const Found& own, const Found& other) {
  const auto part = at::sub(other.lse, own.lse).sigmoid_().t().unsqueeze(2);  // of `other`
  own.out.copy_(at::mul(own.out, at::rsub(part, 1)).add_(at::mul(other.out, part)));
  own.lse.copy_(at::logaddexp(own.lse, other.lse));
}

struct HeadGradients {
  Tensor q, k, v;
};

HeadGradients backward_of_share(const Tensor& g, const Heads& h, const Attention& saved,
                                const Tensor& out, std::int64_t times, const Share& share) {
  const auto q = share.queries_of(h.q), gq = share.queries_of(g), o = share.queries_of(out);
  const auto k = repeat_heads(share.keys_of(h.k), times);
  const auto v = repeat_heads(share.keys_of(h.v), times);
  auto lse = saved.lse.narrow(1, share.query, share.queries).unsqueeze(0);
  Tensor dq, dk, dv;
  if (!g.is_cuda()) {
    std::tie(dq, dk, dv) =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(gq, q, k, v, o, lse, 0.0, false);
  } else {
    const auto surplus = (kEfficientRows - share.queries % kEfficientRows) % kEfficientRows;
    lse = at::constant_pad_nd(lse, {0, surplus}, std::numeric_limits<double>::infinity());
    Tensor bias;
    std::tie(dq, dk, dv, bias) = at::_scaled_dot_product_efficient_attention_backward(
        gq, q, k, v, {}, o, lse.contiguous(), saved.first_state, saved.second_state, 0.0,
        {true, true, true, false}, false);
  }
  return {Share::rows(dq), Share::rows(fold_heads(dk, times)), Share::rows(fold_heads(dv, times))};
}

// Adds the gradients of attend_to_beginnings, after join(), to those of all tokens.
void add_backward_of_beginnings(const Tensor& g, const Heads& h, const Attention& saved,
                                const Tensor& out, const HeadShape& shape,
                                const SharedBeginnings& b, const Heads& to) {
  if (is_flash(h.q)) {
    const auto queries = h.q.size(0) - b.tokens;
    const auto behind = [&](const Tensor& x) { return x.narrow(0, b.tokens, queries); };
    auto [dq, dk, dv] = at::_flash_attention_backward(
        behind(g), behind(h.q), h.k.narrow(0, 0, b.tokens), h.v.narrow(0, 0, b.tokens), behind(out),
        saved.lse.narrow(1, b.tokens, queries).contiguous(), b.device_branch_starts,
        b.device_starts, std::max(kLeastLongest, b.longest_branches), b.longest, 0.0, false,
        saved.first_state, saved.second_state);
    behind(to.q).add_(dq);
    to.k.narrow(0, 0, b.tokens).add_(dk);
    to.v.narrow(0, 0, b.tokens).add_(dv);
    return;
  }
  for_each_share(b, [&](const Share& share) {
    const auto d = backward_of_share(g, h, saved, out, shape.heads / shape.kv_heads, share);
    to.q.narrow(0, share.query, share.queries).add_(d.q);
    to.k.narrow(0, share.key, share.keys).add_(d.k);
    to.v.narrow(0, share.key, share.keys).add_(d.v);
  });
}

}  // namespace

Attention attention_with_beginnings(const Tensor& qkv, const HeadShape& shape, const Sequences& s) {
  const bool flash = is_flash(qkv);
  const auto plain = without_beginnings(s, flash);
  auto all = attention(qkv, shape, plain);
  if (!flash) all.lse = lse_by_token(all.lse, plain);
  const auto out = all.out.view({s.tokens, shape.heads, shape.head_dim});
  const auto first = s.beginnings.tokens, count = s.tokens - first;
  join({out.narrow(0, first, count), all.lse.narrow(1, first, count)},
       attend_to_beginnings(split(qkv, shape), shape, s.beginnings));
  return all;
}

Tensor attention_with_beginnings_backward(const Tensor& g, const Tensor& qkv,
                                          const Attention& saved, const HeadShape& shape,
                                          const Sequences& s) {
  const bool flash = is_flash(qkv);
  const auto plain = without_beginnings(s, flash);
  auto own = saved;
  if (!flash) own.lse = lse_of_backend(saved.lse, plain);
  const Tensor packed = attention_backward(g, qkv, own, shape, plain);
  const auto by_head = [&](const Tensor& x) {
    return x.view({s.tokens, shape.heads, shape.head_dim});
  };
  add_backward_of_beginnings(by_head(g), split(qkv, shape), saved, by_head(saved.out), shape,
                             s.beginnings, split(packed, shape));
  return packed;
}

}  // namespace mgpu::ops
