#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/kernels/fp8.hpp"

// Matrix products of operands in 8-bit floating point, summed in fp32.
namespace mgpu::ops {

// Whether this device multiplies in fp8 with a scale per block, which only GPUs of Hopper do (with
// cuBLASLt 12.9). CPUs compute the same from the dequantized operands, so this is true for them.
bool has_fp8_products(at::Device device);

// Whether x, a tensor that would be quantized, can be multiplied so with a weight of this size. The
// result has the type of x.
bool can_multiply_in_fp8(const Tensor& x, std::int64_t rows, std::int64_t columns);

// Uninitialized memory for the result of a product: the rows are the first ones of memory that has
// fp8_rows(rows), because a product writes as many.
Tensor empty_for_fp8(std::int64_t rows, std::int64_t columns, at::TensorOptions options);

// out = x W^T + beta out, where the rows of W are those of all parts. `out` is from
// empty_for_fp8(). With beta 0 it may be uninitialized.
void multiply(const Tensor& out, const Fp8Rows& x, const std::vector<Fp8>& parts, double beta);

// out = x W + beta out.
void multiply_by_transposed(const Tensor& out, const Fp8Rows& x, const std::vector<Fp8>& parts,
                            double beta);

}  // namespace mgpu::ops
