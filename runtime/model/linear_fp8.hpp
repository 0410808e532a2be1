#pragma once

#include <vector>

#include "runtime/kernels/fp8_product.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::model {

// Whether a layer is multiplied in fp8 with operands like x. If the device or the sizes do not
// allow it, the layer is multiplied with its dequantized or its trained weight.
bool has_fp8_products(const Linear& weights, const Tensor& x);

// The weight of such a layer, as one matrix or one per joined layer: a frozen weight as it is
// stored, or a trained one that is quantized now.
std::vector<ops::Fp8> fp8_weight(const Linear& weights);

}  // namespace mgpu::model
