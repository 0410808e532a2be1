#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

// Our products of few rows with large matrices; see few_rows.hpp and on_gpu.hpp.
namespace mgpu::ops::on_gpu {

// x w^T, with bias and x a^T if they are defined.
struct FewRows {
  at::Tensor x, w, bias, a;
  bool gated = false;  // swiglu() of the product, without a
  // May read w, bias and a before the work queued before has ended; see few_rows.hpp.
  bool early = true;
};

// Whether our kernel computes this faster than cuBLAS.
bool can_few_rows(const FewRows& p);
std::pair<at::Tensor, at::Tensor> few_rows(const FewRows& p);

}  // namespace mgpu::ops::on_gpu
