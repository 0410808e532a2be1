#include "runtime/model/dora.hpp"

#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sum.h>

namespace mgpu::model {
namespace {

Tensor one_per_row(const Tensor& whole) {
  return at::ones({whole.size(0)}, whole.options().dtype(at::kFloat));
}

// The squared lengths of the rows of W + scale * b a.
Tensor squared_lengths(const Tensor& weight, const Adapter& adapter, double scale) {
  const Tensor a = adapter.a.to(at::kFloat), b = adapter.b.to(at::kFloat);
  const Tensor own = at::linalg_vector_norm(weight, 2, {1}, false, at::kFloat).square_();
  const Tensor mixed = at::mul(at::mm(weight, adapter.a.t()), b).sum({1});
  const Tensor change = at::mul(at::mm(b, at::mm(a, a.t())), b).sum({1});
  return own.add_(mixed, 2 * scale).add_(change, scale * scale);
}

}  // namespace

Tensor row_lengths(const Tensor& whole, const Linear& weights, double scale) {
  const Tensor lengths = one_per_row(whole);
  for (const auto& adapter : weights.adapters) {
    const Tensor rows = whole.narrow(0, adapter.begin, adapter.size);
    lengths.narrow(0, adapter.begin, adapter.size)
        .copy_(squared_lengths(rows, adapter, scale).clamp_min_(0).sqrt_().to(whole.scalar_type()));
  }
  return lengths;
}

Tensor dora_factors(const Linear& weights, const Tensor& lengths) {
  const Tensor factors = one_per_row(lengths);
  for (const auto& adapter : weights.adapters) {
    factors.narrow(0, adapter.begin, adapter.size)
        .copy_(at::div(adapter.magnitude.to(at::kFloat),
                       lengths.narrow(0, adapter.begin, adapter.size)));
  }
  return factors;
}

void add_magnitude_gradients(const Tensor& gy, const Tensor& seen, const Tensor& low,
                             const Tensor& whole, const Tensor& lengths, const Linear& weights,
                             const Linear& gradients, double scale) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < weights.adapters.size(); ++i) {
    const auto& adapter = weights.adapters[i];
    const auto rank = adapter.a.size(0);
    const Tensor low_part = low.narrow(1, column, rank);
    column += rank;
    if (!gradients.adapters[i].magnitude.defined()) continue;
    // The output before it is multiplied, one layer at a time: saving it in forward would take as
    // much memory as all other activations of these layers.
    const auto part = [&](const Tensor& all, int dimension) {
      return all.narrow(dimension, adapter.begin, adapter.size);
    };
    Tensor output = at::mm(seen, part(whole, 0).t());
    output.addmm_(low_part, adapter.b.t(), 1, scale);
    const Tensor along = at::sum(at::mul(part(gy, 1), output), {0}, false, at::kFloat);
    gradients.adapters[i].magnitude.add_(at::div(along, part(lengths, 0)));
  }
}

}  // namespace mgpu::model
