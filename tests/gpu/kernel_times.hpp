#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>

namespace mgpu::gpu_test {

// Normally distributed values on the GPU.
inline at::Tensor draw(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape).to(type).to(at::kCUDA);
}

// Times the kernels that are limited by memory bandwidth, and prints what each reaches.
void time_kernels();

}  // namespace mgpu::gpu_test
