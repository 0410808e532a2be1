#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "runtime/kernels/kernels.hpp"

// Descriptions of matrices for the copy engine; see copy_tile() of hopper.cuh.
namespace mgpu::kernels {

// The driver's function that describes a matrix to the copy engine.
using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

inline Encode tile_map_encoder() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                     &found);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    if (function == nullptr || found != cudaDriverEntryPointSuccess)
      throw std::runtime_error("the CUDA driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

// Of a matrix [rows, depth] of 16 bits, in tiles of `lines` rows and 64 columns.
inline CUtensorMap tile_map(Type type, const void* data, std::int64_t rows, std::int64_t depth,
                            int lines) {
  CUtensorMap map{};
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(depth), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(depth) * 2};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(lines)}, steps[] = {1, 1};
  const auto status = tile_map_encoder()(
      &map, type == Type::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      2, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw std::runtime_error("cuTensorMapEncodeTiled failed with status " +
                             std::to_string(static_cast<int>(status)));
  return map;
}

}  // namespace mgpu::kernels
