#pragma once

#include "runtime/model/unit.hpp"

// DoRA: the outputs of a linear layer that have an adapter are those of W + scale * b a, multiplied
// by magnitude / length of their row of this matrix. In backward the lengths count as constants, as
// DoRA's paper proposes (section 4.3) and PEFT computes.
namespace mgpu::model {

// The length of each row of W + scale * b a, [out], rounded to W's type and stored in fp32; 1 for
// outputs without an adapter. It is summed in fp32 from |W|^2 + 2 scale W(b a) + |scale b a|^2: the
// sum of the matrices rounded to 16 bits would lose small changes. `whole`: W, not quantized.
Tensor row_lengths(const Tensor& whole, const Linear& weights, double scale);

// magnitude / length of each output, [out] in fp32; 1 for outputs without an adapter.
Tensor dora_factors(const Linear& weights, const Tensor& lengths);

// Adds the gradients of the magnitudes. `seen` is the input of the adapters and `low` their a seen.
void add_magnitude_gradients(const Tensor& gy, const Tensor& seen, const Tensor& low,
                             const Tensor& whole, const Tensor& lengths, const Linear& weights,
                             const Linear& gradients, double scale);

}  // namespace mgpu::model
