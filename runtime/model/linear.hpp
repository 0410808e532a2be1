#pragma once

#include <cstdint>

#include "runtime/model/unit.hpp"

namespace mgpu::model {

// How adapters take part: y += scale * b (a dropout(x)).
struct AdapterUse {
  double scale = 1;
  double dropout = 0;      // 0 outside of training
  std::uint64_t seed = 0;  // of this layer in this micro-batch; the same again when recomputing
};

// What backward wants besides the input.
struct LinearSaved {
  Tensor low;  // a dropout(x) of all adapters, [tokens, ranks]
};

// What Linear::all_b wants; worth its making where many small batches go through the same weights.
Tensor adapters_side_by_side(const Linear& weights, std::int64_t outputs);

Tensor linear(const Tensor& x, const Linear& weights, const AdapterUse& use, LinearSaved& saved);

// The gradient of x; adds those of the weights to `gradients`.
Tensor linear_backward(const Tensor& gy, const Tensor& x, const Linear& weights,
                       const Linear& gradients, const AdapterUse& use, const LinearSaved& saved);

}  // namespace mgpu::model
