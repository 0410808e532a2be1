#include "runtime/model/linear.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "runtime/kernels/ops.hpp"
#include "runtime/model/dora.hpp"
#include "runtime/model/linear_fp8.hpp"

namespace mgpu::model {
namespace {

std::int64_t rows_of(const PackedMatrix& matrix) {
  return std::visit([](const auto& m) { return m.rows; }, matrix);
}

std::int64_t outputs(const Linear& weights) {
  if (weights.weight.defined()) return weights.weight.size(0);
  std::int64_t rows = 0;
  for (const auto& part : weights.packed) rows += rows_of(part);
  return rows;
}

// The weight. A quantized weight is dequantized into a temporary tensor, in the type of x.
Tensor whole_weight(const Linear& weights, const Tensor& x) {
  if (weights.weight.defined()) return weights.weight;
  const auto columns = std::visit([](const auto& m) { return m.columns; }, weights.packed.front());
  Tensor whole = at::empty({outputs(weights), columns}, x.options());
  std::int64_t rows = 0;
  for (const auto& part : weights.packed) {
    const Tensor to = whole.narrow(0, rows, rows_of(part));
    std::visit([&](const auto& matrix) { ops::dequantize(matrix, to); }, part);
    rows += rows_of(part);
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

std::vector<ops::LowRank::Term> terms_of(const Linear& weights) {
  std::vector<ops::LowRank::Term> terms;
  std::int64_t column = 0;
  for (const auto& adapter : weights.adapters) {
    terms.push_back({adapter.b, adapter.begin, column});
    column += adapter.a.size(0);
  }
  return terms;
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

// The input of the adapters, and of all of a layer with DoRA.
Tensor seen_by_adapters(const Tensor& x, const AdapterUse& use) {
  return use.dropout > 0 ? ops::drop_out(x, {use.dropout, use.seed}) : x;
}

// As in PEFT, with dropout the factors act on the output for the dropped input:
// y = factors * (W + scale * b a) dropout(x) + W (x - dropout(x)) + bias.
Tensor dora_output(const Tensor& x, const Tensor& whole, const Linear& weights,
                   const AdapterUse& use, const LinearSaved& saved) {
  const Tensor seen = seen_by_adapters(x, use);
  Tensor y = at::empty({x.size(0), whole.size(0)}, x.options());
  apply_adapters(y, saved.low, weights, use.scale, 0);
  ops::add_product(y, seen, whole.t());
  y.mul_(weights.factors.defined() ? weights.factors : dora_factors(weights, saved.lengths));
  if (use.dropout > 0) ops::add_product(y, at::sub(x, seen), whole.t());
  return weights.bias.defined() ? y.add_(weights.bias) : y;
}

Tensor dora_input_gradient(const Tensor& gy, const Linear& weights, const Linear& gradients,
                           const AdapterUse& use, LinearSaved& saved) {
  const Tensor whole = whole_weight(weights, gy);
  Tensor g_seen = at::empty_like(gy);
  at::mul_out(g_seen, gy, dora_factors(weights, saved.lengths));
  saved.g_low = low_backward(g_seen, weights, gradients, use, saved.low);
  Tensor gx = at::mm(saved.g_low, weights.all_a);
  if (use.dropout == 0) {
    ops::add_product(gx, g_seen, whole);
    return gx;
  }
  ops::add_product(gx, g_seen.sub_(gy), whole);
  ops::drop_out_(gx, {use.dropout, use.seed});
  ops::add_product(gx, gy, whole);
  return gx;
}

void reduce(const Tensor& x, const Tensor& whole, const Linear& weights, const AdapterUse& use,
            LinearSaved& saved) {
  saved.low = at::mm(seen_by_adapters(x, use), weights.all_a.t());
  if (weights.dora() && !weights.factors.defined())
    saved.lengths = row_lengths(whole, weights, use.scale);
}

std::int64_t rows_of(const std::vector<ops::Fp8>& parts) {
  std::int64_t rows = 0;
  for (const auto& part : parts) rows += part.rows;
  return rows;
}

// The bias and the adapters' part come first: the large product adds its own while it writes y.
Tensor output_in_fp8(const Tensor& x, const ops::Fp8Rows& in_fp8, const Linear& weights,
                     const AdapterUse& use, const LinearSaved& saved) {
  const auto parts = fp8_weight(weights);
  const bool bias = weights.bias.defined(), adapters = has_adapters(weights, use);
  Tensor y = ops::empty_for_fp8(x.size(0), rows_of(parts), x.options());
  if (bias) y.copy_(weights.bias.expand_as(y));
  if (adapters) apply_adapters(y, saved.low, weights, use.scale, bias ? 1 : 0);
  ops::multiply(y, in_fp8.codes.defined() ? in_fp8 : ops::quantize_rows(x), parts,
                bias || adapters ? 1 : 0);
  return y;
}

Tensor input_gradient_in_fp8(const Tensor& gy, const ops::Fp8Rows& in_fp8, const Linear& weights,
                             const Linear& gradients, const AdapterUse& use, LinearSaved& saved) {
  const auto parts = fp8_weight(weights);
  const bool adapters = has_adapters(weights, use);
  Tensor gx = ops::empty_for_fp8(gy.size(0), parts.front().columns, gy.options());
  if (adapters) {
    saved.g_low = low_backward(gy, weights, gradients, use, saved.low);
    saved.low = Tensor();
    at::mm_out(gx, saved.g_low, weights.all_a);
    if (use.dropout > 0) ops::drop_out_(gx, {use.dropout, use.seed});
  }
  ops::multiply_by_transposed(gx, in_fp8.codes.defined() ? in_fp8 : ops::quantize_rows(gy), parts,
                              adapters ? 1 : 0);
  return gx;
}

}  // namespace

bool multiplies_in_fp8(const Linear& weights, const AdapterUse& use, const Tensor& x) {
  // DoRA needs the sum of the weight and the adapters' part.
  const bool scales_sums = has_adapters(weights, use) && weights.dora();
  return !scales_sums && has_fp8_products(weights, x);
}

Tensor factors_of(const Linear& weights, double scale) {
  if (!weights.dora() || scale == 0) return {};
  return dora_factors(weights, row_lengths_of(weights, scale));
}

Tensor row_lengths_of(const Linear& weights, double scale) {
  return row_lengths(whole_weight(weights, weights.all_a), weights, scale);
}

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
  reduce(x, weights.dora() ? whole_weight(weights, x) : Tensor(), weights, use, saved);
}

Tensor linear(const Tensor& x, const Linear& weights, const AdapterUse& use, LinearSaved& saved,
              const ops::Fp8Rows& in_fp8) {
  const bool adapters = has_adapters(weights, use);
  if (multiplies_in_fp8(weights, use, x)) {
    if (adapters) reduce(x, Tensor(), weights, use, saved);
    return output_in_fp8(x, in_fp8, weights, use, saved);
  }
  const Tensor whole = whole_weight(weights, x), weight = whole.t();
  if (adapters) reduce(x, whole, weights, use, saved);
  if (adapters && weights.dora()) return dora_output(x, whole, weights, use, saved);
  if (adapters && !weights.bias.defined()) {
    // The small products first: the large one adds its own while it writes y.
    Tensor y = at::empty({x.size(0), weight.size(1)}, x.options());
    apply_adapters(y, saved.low, weights, use.scale, 0);
    ops::add_product(y, x, weight);
    return y;
  }
  Tensor y = ops::product(x, weight, weights.bias);
  if (adapters) apply_adapters(y, saved.low, weights, use.scale, 1);
  return y;
}

bool returns_parts(const Linear& weights, double scale) {
  if (!has_adapters(weights, {scale, 0, 0}) || weights.dora()) return false;
  if (!weights.packed.empty() && std::holds_alternative<ops::Fp8>(weights.packed.front()))
    return false;                 // linear() adds the adapters' part inside the product in fp8
  const auto& a = weights.all_a;  // it has the type of x
  return !a.is_cuda() || ops::can_add_low_rank(a, {.terms = terms_of(weights)}, outputs(weights));
}

LinearOutput linear_in_parts(const Tensor& x, const Linear& weights, double scale) {
  const bool parts = returns_parts(weights, scale);
  if (!parts && has_adapters(weights, {scale, 0, 0})) {
    LinearSaved unused;
    return {linear(x, weights, {scale, 0, 0}, unused), {}};
  }
  LinearOutput out;
  if (parts) out.added = {.low = {}, .scale = scale, .terms = terms_of(weights)};
  std::tie(out.y, out.added.low) =
      ops::product_and_low(x, whole_weight(weights, x), weights.bias,
                           parts ? weights.all_a : Tensor(), !weights.weight.defined());
  return out;
}

Tensor gated(const Tensor& x, const Linear& gate_up, double scale) {
  if (gate_up.weight.defined() && !has_adapters(gate_up, {scale, 0, 0}))
    return ops::swiglu_of_product(x, gate_up.weight, gate_up.bias);
  const auto [y, added] = linear_in_parts(x, gate_up, scale);
  return ops::swiglu(y, added);
}

Tensor input_gradient(const Tensor& gy, const Linear& weights, const Linear& gradients,
                      const AdapterUse& use, LinearSaved& saved, const ops::Fp8Rows& in_fp8) {
  if (multiplies_in_fp8(weights, use, gy))
    return input_gradient_in_fp8(gy, in_fp8, weights, gradients, use, saved);
  if (!has_adapters(weights, use)) return ops::product(gy, whole_weight(weights, gy));
  if (weights.dora()) return dora_input_gradient(gy, weights, gradients, use, saved);
  saved.g_low = low_backward(gy, weights, gradients, use, saved.low);
  saved.low = Tensor();
  Tensor gx = at::mm(saved.g_low, weights.all_a);
  if (use.dropout > 0) ops::drop_out_(gx, {use.dropout, use.seed});
  ops::add_product(gx, gy, whole_weight(weights, gy));
  return gx;
}

void add_gradients(const Tensor& gy, const Tensor& x, const Linear& weights,
                   const Linear& gradients, const AdapterUse& use, const LinearSaved& saved) {
  if (gradients.weight.defined()) {
    ops::add_weight_gradient(gy, x, gradients.weight, 1, gradients.fresh);
  }
  if (gradients.bias.defined()) ops::add_bias_gradient(gy, gradients.bias);
  if (!has_adapters(weights, use) || !gradients.all_a.defined()) return;
  const Tensor seen = seen_by_adapters(x, use);
  ops::add_weight_gradient(saved.g_low, seen, gradients.all_a);
  if (weights.dora())
    add_magnitude_gradients(gy, seen, saved.low, whole_weight(weights, x), saved.lengths, weights,
                            gradients, use.scale);
}

Tensor linear_backward(const Tensor& gy, const Tensor& x, const Linear& weights,
                       const Linear& gradients, const AdapterUse& use, LinearSaved& saved,
                       const ops::Fp8Rows& in_fp8) {
  Tensor gx = input_gradient(gy, weights, gradients, use, saved, in_fp8);
  add_gradients(gy, x, weights, gradients, use, saved);
  return gx;
}

}  // namespace mgpu::model
