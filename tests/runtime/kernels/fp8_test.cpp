#include "runtime/kernels/fp8.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/le.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/kernels/fp8_product.hpp"
#include "runtime/kernels/ops.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using at::Tensor;

namespace {

// Half a step of E4M3: 3 bits of mantissa, and below 2^-6 steps of 2^-9.
constexpr double kHalfStep = 1. / 16, kLeastStep = 1. / 1024;

Tensor in_fp32(const ops::Fp8& matrix) {
  const auto out = at::full({matrix.rows, matrix.columns}, std::numeric_limits<float>::quiet_NaN());
  ops::dequantize(matrix, out);
  return out;
}

// Each element is off by half a step at most; `scale` is that of its block.
bool is_near(const Tensor& got, const Tensor& wanted, const Tensor& scale) {
  const auto limit = wanted.abs().mul(1.001 * kHalfStep).add(scale.mul(1.001 * kLeastStep));
  return at::le(got.sub(wanted).abs(), limit).all().item<bool>();
}

double error(const Tensor& got, const Tensor& wanted) {
  return got.sub(wanted).norm().item<double>() / wanted.norm().item<double>();
}

}  // namespace

TEST_CASE("a weight in fp8 is off by at most half a step, whatever its size", "[fp8]") {
  const auto rows = GENERATE(1, 127, 128, 129, 300), columns = GENERATE(1, 128, 200);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto weight = at::randn({rows, columns}).to(type);
  const auto bytes = at::zeros({ops::fp8_layout(rows, columns).bytes}, at::kByte);
  const auto matrix = ops::fp8_over(bytes, rows, columns);
  ops::quantize(weight, matrix);
  CHECK(is_near(in_fp32(matrix), weight.to(at::kFloat), matrix.scales.amax()));
  const auto alone = ops::quantized(weight);
  CHECK(at::equal(in_fp32(alone), in_fp32(matrix)));
  CHECK(at::equal(alone.scales, matrix.scales));
}

TEST_CASE("a large weight changes the scale of its own block only", "[fp8]") {
  auto weight = at::randn({256, 384});
  const auto before = ops::quantized(weight);
  weight[130][5] = 4480;
  const auto after = ops::quantized(weight);
  CHECK(after.scales[1][0].item<float>() == 10);
  CHECK(in_fp32(after)[130][5].item<float>() == 4480);
  auto same = before.scales.eq(after.scales);
  CHECK(same.sum().item<std::int64_t>() == same.numel() - 1);
}

TEST_CASE("a block of zeros stays 0 in fp8", "[fp8]") {
  CHECK(at::equal(in_fp32(ops::quantized(at::zeros({3, 200}))), at::zeros({3, 200})));
  CHECK(at::equal(ops::dequantize(ops::quantize_rows(at::zeros({3, 200}))), at::zeros({3, 200})));
}

TEST_CASE("a weight that is not finite cannot be stored in fp8", "[fp8]") {
  auto weight = at::randn({3, 8});
  weight.select(0, 2).fill_(
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()));
  const auto matrix = ops::fp8_over(at::zeros({ops::fp8_layout(3, 8).bytes}, at::kByte), 3, 8);
  CHECK_THROWS_WITH(ops::quantize(weight, matrix), Catch::Matchers::Contains("not finite"));
}

TEST_CASE("rows in fp8 have a scale per 128 elements, and zeros after the last row", "[fp8]") {
  const auto rows = GENERATE(1, 16, 17), columns = GENERATE(64, 128, 300);
  const auto x = at::randn({rows, columns});
  x.select(0, 0).mul_(1e4);
  const auto quantized = ops::quantize_rows(x);
  REQUIRE(quantized.codes.sizes() == at::IntArrayRef({ops::fp8_rows(rows), columns}));
  REQUIRE(quantized.scales.sizes() ==
          at::IntArrayRef({ops::fp8_blocks(columns), ops::fp8_rows(rows)}));
  const auto got = ops::dequantize(quantized);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t begin = 0; begin < columns; begin += ops::kFp8Block) {
      const auto size = std::min(ops::kFp8Block, columns - begin);
      CHECK(is_near(got[row].narrow(0, begin, size), x[row].narrow(0, begin, size),
                    quantized.scales[begin / ops::kFp8Block][row]));
    }
  const auto rest = quantized.codes.narrow(0, rows, ops::fp8_rows(rows) - rows).to(at::kFloat);
  CHECK(at::equal(rest, at::zeros_like(rest)));
}

TEST_CASE("numbers too small for a scale become 0 and not infinite", "[fp8]") {
  const auto got = ops::dequantize(ops::quantize_rows(at::full({1, 4}, 1e-44)));
  CHECK(at::equal(got, at::zeros({1, 4})));
}

TEST_CASE("a product in fp8 is near the product of its operands", "[fp8]") {
  const auto x = at::randn({33, 200}), gy = at::randn({33, 192});
  const auto q = at::randn({128, 200}), k = at::randn({64, 200});
  const std::vector parts{ops::quantized(q), ops::quantized(k)};
  const auto w = at::cat({q, k});
  const auto y = ops::empty_for_fp8(33, 192, x.options());
  const auto gx = ops::empty_for_fp8(33, 200, x.options());
  y.fill_(std::numeric_limits<float>::quiet_NaN());
  gx.fill_(std::numeric_limits<float>::quiet_NaN());
  ops::multiply(y, ops::quantize_rows(x), parts, 0);
  ops::multiply_by_transposed(gx, ops::quantize_rows(gy), parts, 0);
  CHECK(error(y, at::mm(x, w.t())) < .05);
  CHECK(error(gx, at::mm(gy, w)) < .05);
  CHECK(error(y, at::mm(x, w.t())) > 1e-4);  // it is not the exact product
  const auto twice = y.clone();
  ops::multiply(twice, ops::quantize_rows(x), parts, 1);
  CHECK(error(twice, y.mul(2)) < 1e-6);
}

TEST_CASE("what is not finite stays visible in a product in fp8", "[fp8]") {
  auto x = at::randn({4, 256});
  x[2][200] =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const auto y = ops::empty_for_fp8(4, 8, x.options());
  ops::multiply(y, ops::quantize_rows(x), {ops::quantized(at::randn({8, 256}))}, 0);
  const auto finite = at::isfinite(y);
  CHECK(!finite[2].any().item<bool>());
  CHECK(finite.sum().item<std::int64_t>() == 3 * 8);
}

TEST_CASE("the transpose of fp8 matrices has their codes and scales", "[fp8]") {
  const auto first = ops::quantized(at::randn({256, 300}));
  const auto second = ops::quantized(at::randn({128, 300}).mul(100));
  const auto both = ops::transposed({first, second});
  CHECK(both.rows == 300);
  CHECK(both.columns == 384);
  CHECK(at::equal(in_fp32(both), at::cat({in_fp32(first), in_fp32(second)}).t()));
}

TEST_CASE("swiglu and its gradient in fp8 are those that are quantized afterwards", "[fp8]") {
  const auto gate_up = at::randn({5, 400});
  Tensor act = at::randn({5, 200}), same = act.clone();
  const auto forward = ops::swiglu_with_fp8(gate_up);
  CHECK(at::equal(forward.y, ops::swiglu(gate_up)));
  CHECK(at::equal(ops::dequantize(forward.in_fp8), ops::dequantize(ops::quantize_rows(forward.y))));
  const auto backward = ops::swiglu_backward_with_fp8_(act, gate_up);
  CHECK(at::equal(backward.y, ops::swiglu_backward_(same, gate_up)));
  CHECK(at::equal(act, same));
  CHECK(
      at::equal(ops::dequantize(backward.in_fp8), ops::dequantize(ops::quantize_rows(backward.y))));
}
