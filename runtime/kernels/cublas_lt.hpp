#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "runtime/kernels/gemm.hpp"

namespace mgpu::ops {

// cuBLASLt on a GPU; null if the library that PyTorch loads lacks a function that is needed. Has a
// workspace of kGemmWorkspace bytes, for products on one stream at a time. Only algorithms that add
// in fp32 in a fixed order are offered, so their results are the same in every run.
std::unique_ptr<GemmLibrary> open_cublas_lt(at::Device gpu);
// Whether PyTorch has loaded a library with all functions that are needed; also without a GPU.
bool has_cublas_lt();

// What cuBLAS uses on Hopper.
inline constexpr std::int64_t kGemmWorkspace = std::int64_t{32} << 20;

}  // namespace mgpu::ops
