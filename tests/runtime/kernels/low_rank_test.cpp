#include "runtime/kernels/low_rank.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "runtime/kernels/ops.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace mgpu;
using at::Tensor;

// Terms of the ranks 16 and 8 for the outputs [0, 32) and [48, 64) of 64.
ops::LowRank two_terms(std::int64_t rows) {
  return {at::randn({rows, 24}), .5, {{at::randn({32, 16}), 0, 0}, {at::randn({16, 8}), 48, 16}}};
}

Tensor with_two_terms(const Tensor& y, const ops::LowRank& added) {
  Tensor sum = y.clone();
  const auto& low = added.low;
  sum.narrow(1, 0, 32).add_(at::mm(low.narrow(1, 0, 16), added.terms[0].b.t()), .5);
  sum.narrow(1, 48, 16).add_(at::mm(low.narrow(1, 16, 8), added.terms[1].b.t()), .5);
  return sum;
}

}  // namespace

TEST_CASE("low-rank terms are added to their outputs only", "[low rank]") {
  const std::int64_t rows = GENERATE(1, 7, 128);
  const auto y = at::randn({rows, 64});
  const auto added = two_terms(rows);
  auto sum = y.clone();
  ops::add_low_rank_(sum, added);
  CHECK(at::allclose(sum, with_two_terms(y, added), 1e-5, 1e-4));
  CHECK(at::equal(sum.narrow(1, 32, 16), y.narrow(1, 32, 16)));
  ops::add_low_rank_(sum, {});
  CHECK(at::allclose(sum, with_two_terms(y, added), 1e-5, 1e-4));
}

TEST_CASE("a product beside a small one gives both", "[low rank]") {
  const auto x = at::randn({7, 40}), w = at::randn({64, 40}), a = at::randn({24, 40});
  const auto bias = at::randn({64});
  const auto [y, low] = ops::product_and_low(x, w, bias, a);
  CHECK(at::allclose(y, at::mm(x, w.t()).add(bias), 1e-5, 1e-4));
  CHECK(at::allclose(low, at::mm(x, a.t()), 1e-5, 1e-4));
  const auto [alone, none] = ops::product_and_low(x, w, bias, {});
  CHECK(at::equal(alone, y));
  CHECK_FALSE(none.defined());
}

TEST_CASE("swiglu of a product is that of its output", "[low rank]") {
  const auto x = at::randn({7, 40}), w = at::randn({64, 40}), bias = at::randn({64});
  CHECK(at::allclose(ops::swiglu_of_product(x, w, bias), ops::swiglu(at::mm(x, w.t()).add(bias)),
                     1e-4, 1e-4));
}

TEST_CASE("what uses the output of a linear layer adds its terms first", "[low rank]") {
  constexpr std::int64_t kRows = 7;
  const auto y = at::randn({kRows, 64});
  const auto added = two_terms(kRows);
  const auto whole = with_two_terms(y, added);
  CHECK(at::allclose(ops::swiglu(y.clone(), added), ops::swiglu(whole), 1e-4, 1e-4));
  const auto residual = at::randn({kRows, 64}), w = at::randn({64});
  const auto [sum, normed] = ops::add_rms_norm(y.clone(), added, residual, w, 1e-6);
  const auto [wanted_sum, wanted, rstd] = ops::add_rms_norm(whole, residual, w, 1e-6);
  CHECK(at::allclose(sum, wanted_sum, 1e-4, 1e-4));
  CHECK(at::allclose(normed, wanted, 1e-4, 1e-4));

  const ops::HeadShape shape{.heads = 4, .kv_heads = 2, .head_dim = 8};
  const auto angles = at::randn({20, 4});
  const ops::Rotation rotation{angles.cos(), angles.sin(), at::randint(20, {kRows}, at::kInt)};
  const auto pages = [&] { return at::zeros({2, ops::kPageTokens, 2, 8}); };
  const ops::Pages got{pages(), pages()}, expected{pages(), pages()};
  const auto slots = at::arange(kRows, at::kLong).mul(4);
  auto qkv = y.clone(), rotated = whole.clone();
  ops::rotate_into_pages(qkv, added, shape, rotation, slots, got);
  ops::rotate_(rotated, 6, 8, rotation.cos, rotation.sin, rotation.positions, false);
  ops::put_in_pages(rotated, shape, slots, expected);
  CHECK(at::allclose(qkv.narrow(1, 0, 32), rotated.narrow(1, 0, 32), 1e-4, 1e-4));
  CHECK(at::allclose(got.keys, expected.keys, 1e-4, 1e-4));
  CHECK(at::allclose(got.values, expected.values, 1e-4, 1e-4));
}
