#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/kernels/nf4_layout.hpp"

namespace mgpu::ops {

using at::Tensor;

// A matrix in NF4: views into a buffer with the layout of nf4_layout(). Two elements per byte, the
// first in the high half.
struct Nf4 {
  std::int64_t rows = 0, columns = 0;
  Tensor codes;                  // u8 [elements / 2]
  Tensor scales;                 // u8 [blocks] if nested, else fp32
  Tensor levels, outer, offset;  // fp32 [256], [outer blocks], [1]; undefined if not nested

  bool nested() const { return outer.defined(); }
};

// Makes the views. `bytes` is u8, one-dimensional, and has the size that nf4_layout() gives.
Nf4 nf4_over(const Tensor& bytes, std::int64_t rows, std::int64_t columns, bool nested);

// Writes level * scale, rounded to out's dtype, to `out` [rows, columns].
void dequantize(const Nf4& matrix, const Tensor& out);

// Quantizes `weight` into `matrix`, on the same device, bit for bit as bitsandbytes does. If
// nested, the scales are rounded to `levels`, [256] in ascending order. Throws if a weight is not
// finite.
void quantize(const Tensor& weight, const Tensor& levels, const Nf4& matrix);

}  // namespace mgpu::ops
