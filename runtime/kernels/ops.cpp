#include "runtime/kernels/ops.hpp"

#include "runtime/kernels/gemm_choices.hpp"
#include "runtime/kernels/on_gpu.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

namespace mgpu::ops {
namespace {

Tensor to_float(const Tensor& x) {
  return x.to(at::kFloat);
}

// 0 or 1 / (1 - p) per element.
Tensor dropout_mask(const Tensor& like, const Dropout& dropout) {
  auto generator = at::globalContext().defaultGenerator(like.device()).clone();
  generator.set_current_seed(dropout.seed);
  Tensor mask = at::empty_like(like);
  mask.bernoulli_(1 - dropout.probability, generator);
  return mask.mul_(1 / (1 - dropout.probability));
}

TokenScores scores_of(const Tensor& log_p, const Tensor& p, const Tensor& targets) {
  const Tensor has_target = targets.ge(0);
  const Tensor at_target = targets.clamp_min(0).to(at::kLong).unsqueeze(-1);
  return {log_p.gather(-1, at_target).squeeze(-1).mul_(has_target),
          at::mul(p, log_p).sum({-1}).neg_().mul_(has_target)};
}

Tensor rows_rstd(const Tensor& x32, double eps) {
  return at::mul(x32, x32).mean({-1}).add_(eps).rsqrt_();
}

}  // namespace

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& w, double eps) {
  if (on_gpu::can_norm(x, w)) return on_gpu::rms_norm(x, w, eps);
  const Tensor x32 = to_float(x);
  const Tensor rstd = rows_rstd(x32, eps);
  Tensor y = at::mul(x32, rstd.unsqueeze(-1)).to(x.scalar_type());
  return {y.mul_(w), rstd};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const Tensor& w, double eps) {
  if (on_gpu::can_norm(x, w)) return on_gpu::add_rms_norm(x, residual, w, eps);
  Tensor sum = at::add(x, residual);
  auto [y, rstd] = rms_norm(sum, w, eps);
  return {sum, y, rstd};
}

Tensor rms_norm_backward(const Tensor& gy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                         const Tensor& residual, const Tensor& gw) {
  if (on_gpu::can_norm(x, w)) return on_gpu::rms_norm_backward(gy, x, w, rstd, residual, gw);
  const Tensor g32 = to_float(gy);
  const Tensor unit = to_float(x).mul(rstd.unsqueeze(-1));  // x / rms(x)
  if (gw.defined()) gw.add_(at::mul(g32, unit).sum({0}));
  const Tensor gn = at::mul(g32, to_float(w));
  const Tensor along = at::mul(gn, unit).mean({-1}, true);
  Tensor gx = at::sub(gn, at::mul(unit, along)).mul_(rstd.unsqueeze(-1));
  if (residual.defined()) gx.add_(residual);
  return gx.to(x.scalar_type());
}

Tensor swiglu(const Tensor& gate_up) {
  if (on_gpu::can_swiglu(gate_up)) return on_gpu::swiglu(gate_up);
  const auto width = gate_up.size(-1) / 2;
  return at::silu(gate_up.narrow(-1, 0, width)).mul_(gate_up.narrow(-1, width, width));
}

Tensor swiglu_backward_(Tensor& g, const Tensor& gate_up) {
  if (on_gpu::can_swiglu(gate_up)) return on_gpu::swiglu_backward_(g, gate_up);
  const auto width = gate_up.size(-1) / 2;
  const Tensor gate = to_float(gate_up.narrow(-1, 0, width));
  const Tensor up = gate_up.narrow(-1, width, width);
  const Tensor g32 = to_float(g);
  const Tensor s = at::sigmoid(gate);
  Tensor out = at::empty_like(gate_up);
  // d silu = s (1 + gate (1 - s))
  out.narrow(-1, 0, width)
      .copy_(at::mul(g32, up).mul_(s).mul_(at::mul(gate, s.neg().add_(1)).add_(1)));
  out.narrow(-1, width, width).copy_(at::mul(g32, gate).mul_(s));
  g = swiglu(gate_up);
  return out;
}

Tensor drop_out(const Tensor& x, const Dropout& dropout) {
  if (!on_gpu::can_drop_out(x)) return at::mul(x, dropout_mask(x, dropout));
  Tensor out = at::empty_like(x);
  on_gpu::drop_out(x, dropout, out);
  return out;
}

void drop_out_(Tensor& x, const Dropout& dropout) {
  if (on_gpu::can_drop_out(x)) {
    on_gpu::drop_out(x, dropout, x);
  } else {
    x.mul_(dropout_mask(x, dropout));
  }
}

void rotate_(Tensor& qkv, std::int64_t heads, std::int64_t head_dim, const Tensor& cos,
             const Tensor& sin, const Tensor& positions, bool back) {
  if (on_gpu::can_rotate(qkv, head_dim)) {
    on_gpu::rotate_(qkv, heads, head_dim, cos, sin, positions, back);
    return;
  }
  const auto half = head_dim / 2;
  const Tensor rows = qkv.narrow(-1, 0, heads * head_dim).view({qkv.size(0), heads, head_dim});
  // Rounded to the weights' dtype before the product, as in transformers.
  const auto dtype = qkv.scalar_type();
  const Tensor c = cos.index_select(0, positions).to(dtype).unsqueeze(1);
  Tensor s = sin.index_select(0, positions).to(dtype).unsqueeze(1);
  if (back) s = s.neg();
  const Tensor first = rows.narrow(-1, 0, half);
  const Tensor second = rows.narrow(-1, half, half);
  const Tensor turned_first = at::sub(at::mul(first, c), at::mul(second, s));
  second.mul_(c).add_(at::mul(first, s));
  first.copy_(turned_first);
}

Tensor embedding(const Tensor& weight, const Tensor& tokens) {
  if (weight.device() == tokens.device()) return weight.index_select(0, tokens);
  if (on_gpu::can_look_up(weight, tokens)) return on_gpu::look_up(weight, tokens);
  return weight.index_select(0, tokens.to(weight.device())).to(tokens.device());
}

void embedding_backward(const Tensor& gy, const Tensor& tokens, const Tensor& gw) {
  gw.index_add_(0, tokens, gy.to(gw.scalar_type()));
}

Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias) {
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply({.out = out, .a = a, .b = b, .bias = bias});
  return out;
}

void add_product(const Tensor& out, const Tensor& a, const Tensor& b) {
  multiply({.out = out, .a = a, .b = b, .beta = 1});
}

Tensor product_in_fp32(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() == at::kFloat) return at::mm(a, b);
  if (!a.is_cuda()) return at::mm(to_float(a), to_float(b));
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
  multiply({.out = out, .a = a, .b = b});
  return out;
}

void add_weight_gradient(const Tensor& gy, const Tensor& x, const Tensor& gw, double scale,
                         bool overwrite) {
  if (gw.scalar_type() == x.scalar_type() || x.is_cuda()) {
    multiply({.out = gw, .a = gy.t(), .b = x, .alpha = scale, .beta = overwrite ? 0.0 : 1.0});
  } else {
    const Tensor product = at::mm(to_float(gy).t(), to_float(x));
    if (overwrite) gw.zero_();
    gw.add_(product, scale);
  }
}

void add_bias_gradient(const Tensor& gy, const Tensor& gb) {
  gb.add_(gy.sum({0}, false, at::kFloat));
}

CrossEntropy cross_entropy_(Tensor& logits, const Tensor& targets, const double* scale) {
  if (on_gpu::can_cross_entropy(logits)) return on_gpu::cross_entropy_(logits, targets, scale);
  CrossEntropy result;
  const Tensor log_p = at::_log_softmax(to_float(logits), -1, false);
  const Tensor has_target = targets.ge(0);
  const Tensor at_target = targets.clamp_min(0).to(at::kLong).unsqueeze(-1);
  result.loss = log_p.gather(-1, at_target).squeeze(-1).neg_().mul_(has_target);
  result.correct = at::eq(at::argmax(logits, -1), at_target.squeeze(-1)).logical_and_(has_target);
  Tensor p = log_p.exp();
  result.entropy = at::mul(p, log_p).sum({-1}).neg_().mul_(has_target);
  if (scale != nullptr) {
    p.scatter_add_(-1, at_target, at::empty_like(at_target, p.options()).fill_(-1.0));
    p.mul_(has_target.to(p.scalar_type()).mul_(*scale).unsqueeze(-1));
    logits.copy_(p);
  }
  return result;
}

TokenScores token_scores(const Tensor& logits, const Tensor& targets, double temperature) {
  if (on_gpu::can_cross_entropy(logits))
    return on_gpu::token_scores_(logits, targets, temperature, nullptr, nullptr);
  const Tensor log_p = at::_log_softmax(to_float(logits).div(temperature), -1, false);
  return scores_of(log_p, log_p.exp(), targets);
}

TokenScores token_scores_backward_(Tensor& logits, const Tensor& targets, double temperature,
                                   const TokenSlopes& slopes) {
  if (on_gpu::can_cross_entropy(logits))
    return on_gpu::token_scores_(logits, targets, temperature, &slopes.log_probs,
                                 &slopes.entropies);
  const Tensor log_p = at::_log_softmax(to_float(logits).div(temperature), -1, false);
  const Tensor p = log_p.exp();
  auto scores = scores_of(log_p, p, targets);
  const Tensor has_target = targets.ge(0);
  const Tensor at_target = targets.clamp_min(0).to(at::kLong).unsqueeze(-1);
  const Tensor slope = at::mul(slopes.log_probs, has_target).unsqueeze(-1);
  Tensor g = at::mul(p, slope).neg_().scatter_add_(-1, at_target, slope);
  if (slopes.entropies.defined()) {
    const Tensor entropy = at::mul(p, log_p).sum({-1}, true).neg_();
    const Tensor entropy_slope = at::mul(slopes.entropies, has_target).unsqueeze(-1);
    g.sub_(at::add(log_p, entropy).mul_(p).mul_(entropy_slope));
  }
  logits.copy_(g.div_(temperature));
  return scores;
}

}  // namespace mgpu::ops
