#pragma once

#ifdef MGPU_CUDA
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include "runtime/kernels/kernels.hpp"

// Tensors as our kernels take them.
namespace mgpu::ops::on_gpu {

inline bool known_type(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

inline kernels::Type type_of(const at::Tensor& x) {
  if (x.scalar_type() == at::kHalf) return kernels::Type::f16;
  return x.scalar_type() == at::kBFloat16 ? kernels::Type::bf16 : kernels::Type::f32;
}

inline bool fits(const at::Tensor& x, std::int64_t width) {
  return x.is_cuda() && known_type(x) && x.is_contiguous() &&
         kernels::vectorizable(x.const_data_ptr(), width);
}

// Uninitialized numbers in fp32 on the GPU of `like`.
inline at::Tensor floats(const at::Tensor& like, std::int64_t n) {
  return at::empty({n}, like.options().dtype(at::kFloat));
}

inline cudaStream_t stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

}  // namespace mgpu::ops::on_gpu
#endif
