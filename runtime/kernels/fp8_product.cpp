#include "runtime/kernels/fp8_product.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/fp8_on_gpu.hpp"

namespace mgpu::ops {
namespace {

constexpr int kHopper = 90, kAfterHopper = 100;

Tensor whole_matrix(const std::vector<Fp8>& parts) {
  std::int64_t rows = 0;
  for (const auto& part : parts) rows += part.rows;
  const auto& first = parts.front();
  Tensor whole = at::empty({rows, first.columns}, first.scales.options());
  std::int64_t begin = 0;
  for (const auto& part : parts) {
    dequantize(part, whole.narrow(0, begin, part.rows));
    begin += part.rows;
  }
  return whole;
}

void emulate(const Tensor& out, const Fp8Rows& x, const Tensor& w, double beta) {
  Tensor y = at::mm(dequantize(x), w);
  if (beta != 0) y.add_(out, beta);
  Tensor(out).copy_(y);
}

}  // namespace

bool has_fp8_products(at::Device device) {
  if (!device.is_cuda()) return true;
  const int capability = capability_of(device);
  return capability >= kHopper && capability < kAfterHopper && on_gpu::has_fp8_library();
}

bool can_multiply_in_fp8(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  if (!x.is_cuda()) return true;
  return (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         rows % kFp8Block == 0 && columns % kFp8Block == 0 && has_fp8_products(x.device());
}

Tensor empty_for_fp8(std::int64_t rows, std::int64_t columns, at::TensorOptions options) {
  return at::empty({fp8_rows(rows), columns}, options).narrow(0, 0, rows);
}

void multiply(const Tensor& out, const Fp8Rows& x, const std::vector<Fp8>& parts, double beta) {
  if (!out.is_cuda()) return emulate(out, x, whole_matrix(parts).t(), beta);
  std::int64_t begin = 0;
  for (const auto& part : parts) {
    on_gpu::multiply(out.narrow(1, begin, part.rows), x, part, beta);
    begin += part.rows;
  }
}

void multiply_by_transposed(const Tensor& out, const Fp8Rows& x, const std::vector<Fp8>& parts,
                            double beta) {
  if (!out.is_cuda()) return emulate(out, x, whole_matrix(parts), beta);
  on_gpu::multiply(out, x, transposed(parts), beta);
}

}  // namespace mgpu::ops
