#include "runtime/model/linear.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
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

bool has_adapters(const Linear& weights, const AdapterUse& use) {
  // A scale of 0 leaves the adapters out: they cost nothing, and what is not finite in them has no
  // effect.
  return !weights.adapters.empty() && use.scale != 0;
}

// y = beta y + scale * the adapters' part. With beta 0, y may be uninitialized.
void apply_adapters(Tensor& y, const Tensor& low, const Linear& weights, double scale,
                    double beta) {
  if (weights.all_b.defined()) {
    at::addmm_out(y, y, low, weights.all_b.t(), beta, scale);
    return;
  }
  std::int64_t covered = 0;
  for (const auto& adapter : weights.adapters) covered += adapter.size;
  if (beta == 0 && covered < y.size(1)) y.zero_();
  std::int64_t column = 0;
  for (const auto& adapter : weights.adapters) {
    const auto rank = adapter.a.size(0);
    Tensor part = y.narrow(1, adapter.begin, adapter.size);
    at::addmm_out(part, part, low.narrow(1, column, rank), adapter.b.t(), beta, scale);
    column += rank;
  }
}

// The gradient of `low`, and those of the adapters' b.
Tensor low_backward(const Tensor& gy, const Linear& weights, const Linear& gradients,
                    const AdapterUse& use, const Tensor& low) {
  Tensor g_low = at::empty_like(low);
  std::int64_t column = 0;
  for (std::size_t i = 0; i < weights.adapters.size(); ++i) {
    const auto& adapter = weights.adapters[i];
    const auto rank = adapter.a.size(0);
    const Tensor g_part = gy.narrow(1, adapter.begin, adapter.size);
    Tensor g_low_part = g_low.narrow(1, column, rank);
    at::addmm_out(g_low_part, g_low_part, g_part, adapter.b, 0, use.scale);
    if (gradients.adapters[i].b.defined()) {
      ops::add_weight_gradient(g_part, low.narrow(1, column, rank), gradients.adapters[i].b,
                               use.scale);
    }
    column += rank;
  }
  return g_low;
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

void reduce(const Tensor& x, const Linear& weights, const AdapterUse& use, LinearSaved& saved) {
  if (!has_adapters(weights, use)) return;
  const Tensor seen = use.dropout > 0 ? ops::drop_out(x, {use.dropout, use.seed}) : x;
  saved.low = at::mm(seen, weights.all_a.t());
}

Tensor linear(const Tensor& x, const Linear& weights, const AdapterUse& use, LinearSaved& saved) {
  const Tensor weight = whole_weight(weights, x).t();
  const bool adapters = has_adapters(weights, use);
  if (adapters) reduce(x, weights, use, saved);
  if (adapters && !weights.bias.defined()) {
    // The small products first: the large one adds its own while it writes y.
    Tensor y = at::empty({x.size(0), weight.size(1)}, x.options());
    apply_adapters(y, saved.low, weights, use.scale, 0);
    return y.addmm_(x, weight);
  }
  Tensor y = weights.bias.defined() ? at::addmm(weights.bias, x, weight) : at::mm(x, weight);
  if (adapters) apply_adapters(y, saved.low, weights, use.scale, 1);
  return y;
}

Tensor input_gradient(const Tensor& gy, const Linear& weights, const Linear& gradients,
                      const AdapterUse& use, LinearSaved& saved) {
  if (!has_adapters(weights, use)) return at::mm(gy, whole_weight(weights, gy));
  saved.g_low = low_backward(gy, weights, gradients, use, saved.low);
  saved.low = Tensor();
  Tensor gx = at::mm(saved.g_low, weights.all_a);
  if (use.dropout > 0) ops::drop_out_(gx, {use.dropout, use.seed});
  return gx.addmm_(gy, whole_weight(weights, gy));
}

void add_gradients(const Tensor& gy, const Tensor& x, const Linear& weights,
                   const Linear& gradients, const AdapterUse& use, const LinearSaved& saved) {
  if (gradients.weight.defined()) ops::add_weight_gradient(gy, x, gradients.weight);
  if (gradients.bias.defined()) ops::add_bias_gradient(gy, gradients.bias);
  if (!has_adapters(weights, use) || !gradients.all_a.defined()) return;
  const Tensor seen = use.dropout > 0 ? ops::drop_out(x, {use.dropout, use.seed}) : x;
  ops::add_weight_gradient(saved.g_low, seen, gradients.all_a);
}

Tensor linear_backward(const Tensor& gy, const Tensor& x, const Linear& weights,
                       const Linear& gradients, const AdapterUse& use, LinearSaved& saved) {
  Tensor gx = input_gradient(gy, weights, gradients, use, saved);
  add_gradients(gy, x, weights, gradients, use, saved);
  return gx;
}

}  // namespace mgpu::model
