#include "runtime/model/linear.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include "runtime/kernels/ops.hpp"

namespace mgpu::model {
namespace {

std::int64_t outputs(const Linear& weights) {
  if (weights.weight.defined()) return weights.weight.size(0);
  std::int64_t rows = 0;
  for (const auto& part : weights.packed) rows += part.rows;
  return rows;
}

// The weight in x's type. A 4-bit weight is dequantized into a temporary tensor.
Tensor whole_weight(const Linear& weights, const Tensor& x) {
  if (weights.weight.defined()) return weights.weight;
  Tensor whole = at::empty({outputs(weights), weights.packed.front().columns}, x.options());
  std::int64_t rows = 0;
  for (const auto& part : weights.packed) {
    ops::dequantize(part, whole.narrow(0, rows, part.rows));
    rows += part.rows;
  }
  return whole;
}

// The dropout mask, 0 or 1 / (1 - p) per element. The same seed gives the same mask.
Tensor dropout_mask(const Tensor& like, const AdapterUse& use) {
  auto generator = at::globalContext().defaultGenerator(like.device()).clone();
  generator.set_current_seed(use.seed);
  Tensor mask = at::empty_like(like);
  mask.bernoulli_(1 - use.dropout, generator);
  return mask.mul_(1 / (1 - use.dropout));
}

void add_adapters(const Tensor& y, const Tensor& x, const Linear& weights, const AdapterUse& use,
                  LinearSaved& saved) {
  const Tensor seen = use.dropout > 0 ? at::mul(x, dropout_mask(x, use)) : x;
  saved.low = at::mm(seen, weights.all_a.t());
  if (weights.all_b.defined()) {
    Tensor(y).addmm_(saved.low, weights.all_b.t(), 1, use.scale);
    return;
  }
  std::int64_t column = 0;
  for (const auto& adapter : weights.adapters) {
    const auto rank = adapter.a.size(0);
    Tensor part = y.narrow(1, adapter.begin, adapter.size);
    part.addmm_(saved.low.narrow(1, column, rank), adapter.b.t(), 1, use.scale);
    column += rank;
  }
}

void add_adapters_backward(const Tensor& gx, const Tensor& gy, const Tensor& x,
                           const Linear& weights, const Linear& gradients, const AdapterUse& use,
                           const LinearSaved& saved) {
  Tensor g_low = at::empty_like(saved.low);
  std::int64_t column = 0;
  for (std::size_t i = 0; i < weights.adapters.size(); ++i) {
    const auto& adapter = weights.adapters[i];
    const auto rank = adapter.a.size(0);
    const Tensor g_part = gy.narrow(1, adapter.begin, adapter.size);
    Tensor g_low_part = g_low.narrow(1, column, rank);
    g_low_part.copy_(at::mm(g_part, adapter.b).mul_(use.scale));
    if (gradients.adapters[i].b.defined()) {
      ops::add_weight_gradient(g_part, saved.low.narrow(1, column, rank).mul(use.scale),
                               gradients.adapters[i].b);
    }
    column += rank;
  }
  if (use.dropout > 0) {
    const Tensor mask = dropout_mask(x, use);
    ops::add_weight_gradient(g_low, at::mul(x, mask), gradients.all_a);
    gx.add_(at::mm(g_low, weights.all_a).mul_(mask));
  } else {
    ops::add_weight_gradient(g_low, x, gradients.all_a);
    gx.addmm_(g_low, weights.all_a);
  }
}

}  // namespace

Tensor adapters_side_by_side(const Linear& weights) {
  if (weights.adapters.empty()) return {};
  const Tensor all = at::zeros({outputs(weights), weights.all_a.size(0)}, weights.all_a.options());
  std::int64_t column = 0;
  for (const auto& adapter : weights.adapters) {
    const auto rank = adapter.a.size(0);
    all.narrow(0, adapter.begin, adapter.size).narrow(1, column, rank).copy_(adapter.b);
    column += rank;
  }
  return all;
}

Tensor linear(const Tensor& x, const Linear& weights, const AdapterUse& use, LinearSaved& saved) {
  const Tensor weight = whole_weight(weights, x).t();
  Tensor y = weights.bias.defined() ? at::addmm(weights.bias, x, weight) : at::mm(x, weight);
  // A scale of 0 leaves the adapters out: they cost nothing, and what is not finite in them has no
  // effect.
  if (!weights.adapters.empty() && use.scale != 0) add_adapters(y, x, weights, use, saved);
  return y;
}

Tensor linear_backward(const Tensor& gy, const Tensor& x, const Linear& weights,
                       const Linear& gradients, const AdapterUse& use, const LinearSaved& saved) {
  if (gradients.weight.defined()) ops::add_weight_gradient(gy, x, gradients.weight);
  if (gradients.bias.defined()) ops::add_bias_gradient(gy, gradients.bias);
  Tensor gx = at::mm(gy, whole_weight(weights, x));
  if (!weights.adapters.empty()) {
    add_adapters_backward(gx, gy, x, weights, gradients, use, saved);
  }
  return gx;
}

}  // namespace mgpu::model
