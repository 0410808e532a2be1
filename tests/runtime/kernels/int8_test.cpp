#include "runtime/kernels/int8.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "tests/support/catch.hpp"

using namespace mgpu;

namespace {

ops::Int8 quantized(const at::Tensor& weight) {
  const auto rows = weight.size(0), columns = weight.size(1);
  const auto matrix =
      ops::int8_over(at::zeros({ops::int8_layout(rows, columns).bytes}, at::kByte), rows, columns);
  ops::quantize(weight, matrix);
  return matrix;
}

}  // namespace

TEST_CASE("an 8-bit weight is off by at most half a step of its row", "[int8]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto weight = at::randn({7, 33}).to(type);
  const auto matrix = quantized(weight);
  const auto out = at::empty({7, 33});
  ops::dequantize(matrix, out);
  const auto error = out.sub(weight.to(at::kHalf).to(at::kFloat)).abs().amax({1});
  CHECK(error.sub(matrix.scales.mul(.5001 / 127)).max().item<float>() <= 0);
  CHECK(at::equal(matrix.codes.abs().amax({1}), at::zeros({7}, at::kChar).fill_(127)));
}

TEST_CASE("a row of zeros stays 0 in 8 bits", "[int8]") {
  auto weight = at::randn({3, 8});
  weight.select(0, 1).zero_();
  const auto out = at::empty({3, 8});
  ops::dequantize(quantized(weight), out);
  CHECK(at::equal(out.select(0, 1), at::zeros({8})));
}

TEST_CASE("a weight that is not finite in fp16 cannot be stored in 8 bits", "[int8]") {
  auto weight = at::randn({3, 8});
  weight.select(0, 2).fill_(GENERATE(std::numeric_limits<float>::quiet_NaN(), 1e6F));
  CHECK_THROWS_WITH(quantized(weight), Catch::Matchers::Contains("not finite"));
}
