#include "runtime/kernels/ops.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "tests/support/catch.hpp"

using namespace mgpu;

TEST_CASE("a product of bf16 matrices in fp32 is not rounded", "[ops]") {
  const auto a = at::randn({5, 33}).to(at::kBFloat16), b = at::randn({33, 7}).to(at::kBFloat16);
  const auto product = ops::product_in_fp32(a, b);
  CHECK(at::equal(product, at::mm(a.to(at::kFloat), b.to(at::kFloat))));
  CHECK_FALSE(at::equal(product, product.to(at::kBFloat16).to(at::kFloat)));
  const auto c = a.to(at::kFloat), d = b.to(at::kFloat);
  CHECK(at::equal(ops::product_in_fp32(c, d), at::mm(c, d)));
}
