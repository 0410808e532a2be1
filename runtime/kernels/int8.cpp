#include "runtime/kernels/int8.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>

#include <algorithm>
#include <stdexcept>

namespace mgpu::ops {
namespace {

constexpr double kLargestInt8 = 127;
constexpr float kLeastRowScale = 1e-30F;       // avoids dividing by 0 in a row of zeros
constexpr std::int64_t kInt8AtOnce = 1 << 22;  // elements quantized at a time

}  // namespace

Int8 int8_over(const Tensor& bytes, std::int64_t rows, std::int64_t columns) {
  const auto codes = int8_layout(rows, columns).codes;
  return {rows, columns,
          bytes.narrow(0, codes, rows * columns).view(at::kChar).view({rows, columns}),
          bytes.narrow(0, 0, rows * 4).view(at::kFloat)};
}

void dequantize(const Int8& m, const Tensor& out) {
  Tensor target = out;
  at::mul_out(target, m.codes, m.scales.mul(1 / kLargestInt8).unsqueeze(1));
}

void quantize(const Tensor& weight, const Int8& to) {
  const auto at_once = std::max<std::int64_t>(1, kInt8AtOnce / to.columns);
  for (std::int64_t begin = 0; begin < to.rows; begin += at_once) {
    const auto count = std::min(at_once, to.rows - begin);
    const auto rows = weight.narrow(0, begin, count).to(at::kHalf).to(at::kFloat);
    const auto largest = rows.abs().amax({1});
    to.scales.narrow(0, begin, count).copy_(largest);
    // Rounded twice, as torch computes 127 / largest.
    const auto factor = largest.clamp_min(kLeastRowScale).reciprocal_().mul_(kLargestInt8);
    to.codes.narrow(0, begin, count).copy_(at::mul(rows, factor.unsqueeze(1)).round_());
  }
  if (!at::isfinite(to.scales).all().item<bool>())
    throw std::runtime_error(
        "a weight that is not finite, or too large for fp16, cannot be stored in 8 bits");
}

}  // namespace mgpu::ops
