#pragma once

#include <cstdint>

#include "runtime/kernels/kernels.hpp"

// Our CUDA kernels that convert to 8-bit floating point (E4M3); see fp8.hpp for the formats. Each
// reads and writes memory once.
namespace mgpu::kernels {

// Codes [padded, columns] and scales [column blocks, padded] of x [rows, columns], with a scale per
// 128 elements of a row. Rows from `rows` on are 0. columns is a multiple of 128.
struct Fp8RowsShape {
  std::int64_t rows = 0, padded = 0, columns = 0;
};
struct Fp8RowsOut {
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
};
void quantize_rows(Type type, const void* x, const Fp8RowsOut& out, const Fp8RowsShape& shape,
                   cudaStream_t stream);

// swiglu() of kernels.hpp, which also quantizes y; the shape is that of y.
void swiglu_in_fp8(Type type, const void* gate_up, void* y, const Fp8RowsOut& out,
                   const Fp8RowsShape& shape, cudaStream_t stream);
// swiglu_backward(), which also quantizes the gradient of gate_up, with its shape: columns is a
// multiple of 256.
void swiglu_backward_in_fp8(Type type, void* g, const void* gate_up, void* gradient,
                            const Fp8RowsOut& out, const Fp8RowsShape& shape, cudaStream_t stream);

// A matrix with a scale per 128 x 128 elements: rows and columns are multiples of 128, and the
// scales of rows of blocks are scale_stride apart.
struct Fp8Shape {
  std::int64_t rows = 0, columns = 0, scale_stride = 0;
};
void quantize_blocks(Type type, const void* weight, std::uint8_t* codes, float* scales,
                     const Fp8Shape& shape, cudaStream_t stream);

// Writes the transpose of a matrix into columns of a larger one, whose rows are code_stride apart,
// and those of its scales scale_stride.
struct Fp8Columns {
  std::uint8_t* codes = nullptr;  // of the first of these columns
  float* scales = nullptr;
  std::int64_t code_stride = 0, scale_stride = 0;
};
void transpose_fp8(const std::uint8_t* codes, const float* scales, const Fp8Shape& shape,
                   const Fp8Columns& to, cudaStream_t stream);

}  // namespace mgpu::kernels
