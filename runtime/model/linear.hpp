#pragma once

#include <cstdint>

#include "runtime/kernels/low_rank.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::model {

// How a linear layer applies its adapters: y += scale * b (a dropout(x)); for DoRA see dora.hpp.
struct AdapterUse {
  double scale = 1;
  double dropout = 0;  // 0 outside of training
  // Of this layer in this micro-batch; recomputation must pass the same seed.
  std::uint64_t seed = 0;
};

// What backward needs besides the input.
struct LinearSaved {
  Tensor low;      // a dropout(x) of all adapters, [tokens, ranks]
  Tensor g_low;    // its gradient, which input_gradient leaves to add_gradients
  Tensor lengths;  // with DoRA: see row_lengths()
};

// Builds Linear::all_b, which replaces one product per adapter by a single one. Worthwhile if
// linear() has many small batches of the same weights.
Tensor adapters_side_by_side(const Linear& weights);

// Builds Linear::factors for adapters with DoRA, which otherwise follow from the weights each time.
Tensor factors_of(const Linear& weights, double scale);
// See row_lengths() of dora.hpp.
Tensor row_lengths_of(const Linear& weights, double scale);

// Whether linear() multiplies an operand like x in fp8. Then it, and the backward functions, can
// take x or gy also quantized, as `in_fp8`, from a caller that has it; otherwise they quantize it.
bool multiplies_in_fp8(const Linear& weights, const AdapterUse& use, const Tensor& x);

// y = x W^T + bias + adapters.
Tensor linear(const Tensor& x, const Linear& weights, const AdapterUse& use, LinearSaved& saved,
              const ops::Fp8Rows& in_fp8 = {});

// For few rows without gradients: what linear() returns, with the adapters' part on its own where
// returns_parts(), so that the user of the output adds it. Never with dropout.
struct LinearOutput {
  Tensor y;
  ops::LowRank added;
};
// On a CPU always, unless there are no adapters or they have DoRA; on a GPU if our kernels can add
// it.
bool returns_parts(const Linear& weights, double scale);
LinearOutput linear_in_parts(const Tensor& x, const Linear& weights, double scale);
// swiglu of it.
Tensor gated(const Tensor& x, const Linear& gate_up, double scale);

// Saves what linear() saves, without computing y.
void reduce(const Tensor& x, const Linear& weights, const AdapterUse& use, LinearSaved& saved);

// Returns the gradient of x and adds the gradients of the weights to `gradients`.
Tensor linear_backward(const Tensor& gy, const Tensor& x, const Linear& weights,
                       const Linear& gradients, const AdapterUse& use, LinearSaved& saved,
                       const ops::Fp8Rows& in_fp8 = {});

// Its two halves, for a caller that computes x again between them. The first adds the gradients of
// the adapters' b, which do not need x.
Tensor input_gradient(const Tensor& gy, const Linear& weights, const Linear& gradients,
                      const AdapterUse& use, LinearSaved& saved, const ops::Fp8Rows& in_fp8 = {});
void add_gradients(const Tensor& gy, const Tensor& x, const Linear& weights,
                   const Linear& gradients, const AdapterUse& use, const LinearSaved& saved);

}  // namespace mgpu::model
