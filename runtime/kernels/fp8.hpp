#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/kernels/fp8_layout.hpp"

// Matrices in 8-bit floating point (E4M3: 3 bits of mantissa, at most 448) with scales per block.
// An element is code * scale of its block. The scale of a block is its largest magnitude / 448. A
// block with an element that is not finite has codes or a scale that are not finite, so that every
// product with it shows it.
namespace mgpu::ops {

using at::Tensor;

inline constexpr double kLargestFp8 = 448;
// Of a block; smaller ones count as this, so that 448 / largest is finite. All codes of a block of
// zeros are 0.
inline constexpr double kLeastFp8Block = 1e-30;

// A weight, with a scale per 128 x 128 elements: views into a buffer with the layout of
// fp8_layout(), or tensors of their own. Blocks at the ends may be smaller.
struct Fp8 {
  std::int64_t rows = 0, columns = 0;
  Tensor codes;   // e4m3 [rows, columns]
  Tensor scales;  // fp32 [row blocks, fp8_scale_stride(columns)]; 0 beyond the column blocks
};

// Makes the views. `bytes` is u8, one-dimensional, and has the size that fp8_layout() gives.
Fp8 fp8_over(const Tensor& bytes, std::int64_t rows, std::int64_t columns);

// Writes the elements, rounded to out's dtype, to `out` [rows, columns].
void dequantize(const Fp8& matrix, const Tensor& out);

// Quantizes `weight` into `matrix`, on the same device. Throws if a weight is not finite.
void quantize(const Tensor& weight, const Fp8& matrix);

// The same for a weight that changes in every step. Does not wait for a GPU.
Fp8 quantized(const Tensor& weight);

// The input of a product, with a scale per 128 elements of a row. There may be more rows than the
// input has, which are 0: cuBLASLt multiplies rows in multiples of kFp8Rows.
inline constexpr std::int64_t kFp8Rows = 16;
constexpr std::int64_t fp8_rows(std::int64_t rows) {
  return (rows + kFp8Rows - 1) / kFp8Rows * kFp8Rows;
}
struct Fp8Rows {
  std::int64_t rows = 0;  // of the input
  Tensor codes;           // e4m3 [fp8_rows(rows), columns]
  Tensor scales;          // fp32 [column blocks, fp8_rows(rows)]
};
Fp8Rows quantize_rows(const Tensor& x);

// swiglu() and swiglu_backward_() of ops.hpp, whose results are quantized while they are written.
struct WithFp8 {
  Tensor y;
  Fp8Rows in_fp8;
};
WithFp8 swiglu_with_fp8(const Tensor& gate_up);
WithFp8 swiglu_backward_with_fp8_(Tensor& g, const Tensor& gate_up);

// The elements in fp32, [rows, columns].
Tensor dequantize(const Fp8Rows& x);

// The matrix whose rows are those of all parts, transposed. Parts have the same columns; on a GPU
// with our kernels all sizes are multiples of 128, elsewhere the rows of all parts but the last.
Fp8 transposed(const std::vector<Fp8>& parts);

}  // namespace mgpu::ops
