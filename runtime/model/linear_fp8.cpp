#include "runtime/model/linear_fp8.hpp"

#include <algorithm>

namespace mgpu::model {

bool has_fp8_products(const Linear& weights, const Tensor& x) {
  const auto& w = weights.weight;
  if (w.defined()) return weights.in_fp8 && ops::can_multiply_in_fp8(x, w.size(0), w.size(1));
  return !weights.packed.empty() &&
         std::ranges::all_of(weights.packed, [&](const PackedMatrix& part) {
           const auto* matrix = std::get_if<ops::Fp8>(&part);
           return matrix != nullptr && ops::can_multiply_in_fp8(x, matrix->rows, matrix->columns);
         });
}

std::vector<ops::Fp8> fp8_weight(const Linear& weights) {
  if (weights.weight.defined()) return {ops::quantized(weights.weight)};
  std::vector<ops::Fp8> parts;
  for (const auto& part : weights.packed) parts.push_back(std::get<ops::Fp8>(part));
  return parts;
}

}  // namespace mgpu::model
