#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/kernels/int8_layout.hpp"

namespace mgpu::ops {

using at::Tensor;

// A matrix in LLM.int8's format: views into a buffer with the layout of int8_layout(). An element
// is code * scale of its row / 127.
struct Int8 {
  std::int64_t rows = 0, columns = 0;
  Tensor codes;   // i8 [rows, columns]
  Tensor scales;  // fp32 [rows]: the largest magnitude in the row
};

// Makes the views. `bytes` is u8, one-dimensional, and has the size that int8_layout() gives.
Int8 int8_over(const Tensor& bytes, std::int64_t rows, std::int64_t columns);

// Writes the elements, rounded to out's dtype, to `out` [rows, columns].
void dequantize(const Int8& matrix, const Tensor& out);

// Quantizes `weight` into `matrix`, on the same device, bit for bit as bitsandbytes does: weights
// are rounded to fp16 first. Throws if a weight is not finite in fp16.
void quantize(const Tensor& weight, const Int8& matrix);

}  // namespace mgpu::ops
