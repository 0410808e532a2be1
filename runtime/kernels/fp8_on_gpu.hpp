#pragma once

#include "runtime/kernels/fp8.hpp"

// The products of fp8_product.hpp on a GPU, by cuBLASLt.
namespace mgpu::ops::on_gpu {

// Whether this program was built for a cuBLASLt with scales per block, and PyTorch has loaded one.
bool has_fp8_library();

// out = x W^T + beta out. Waits for nothing. The workspace serves one stream of each thread.
void multiply(const Tensor& out, const Fp8Rows& x, const Fp8& w, double beta);

}  // namespace mgpu::ops::on_gpu
