#include "runtime/kernels/gemm_choices.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <vector>

#include "runtime/kernels/cublas_lt.hpp"
#include "runtime/kernels/ops.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_gemms.hpp"

using namespace mgpu;
using ops::fastest;
using ops::Gemm;
using ops::gemm_of;
using ops::GemmChoices;
using ops::GemmOperands;
using tests::algorithm_number;
using tests::FakeGemms;

namespace {

// Each candidate's times in the order of its calls; the last one repeats. Negative: it fails.
std::size_t fastest_of(std::vector<std::vector<double>> times) {
  std::vector<std::size_t> calls(times.size());
  return fastest(times.size(), [&](std::size_t i) -> std::optional<double> {
    const auto& own = times[i];
    const double time = own[std::min(calls[i]++, own.size() - 1)];
    return time < 0 ? std::nullopt : std::optional(time);
  });
}

at::Tensor matrix(std::int64_t rows, std::int64_t columns, at::ScalarType type = at::kBFloat16) {
  return at::ones({rows, columns}, type);
}

GemmOperands product_of(std::int64_t rows) {
  return {.out = at::empty({rows, 24}, at::kBFloat16), .a = matrix(rows, 16), .b = matrix(16, 24)};
}

constexpr double kAny = 1;  // flops: every product is worth a choice

}  // namespace

TEST_CASE("the algorithm with the smallest median of its times is the fastest", "[gemm]") {
  CHECK(fastest_of({{3}, {2}, {1}, {4}}) == 2);
  CHECK(fastest_of({{1}, {2}, {3}}) == 0);
  CHECK(fastest_of({{3}}) == 0);
  // The first call, which loads the kernel, does not count, and single slow calls do not either.
  CHECK(fastest_of({{3}, {99, 1, 99, 1, 99, 1, 1, 99, 1}}) == 1);
  CHECK(fastest_of({{3}, {1, 99, 1, 99, 1, 99, 99}}) == 0);
}

TEST_CASE("an algorithm that is hardly faster than PyTorch's is not chosen", "[gemm]") {
  CHECK(fastest_of({{1}, {.995}}) == 0);
  CHECK(fastest_of({{1}, {.985}}) == 1);
}

TEST_CASE("an algorithm that fails is not chosen", "[gemm]") {
  CHECK(fastest_of({{3}, {-1}, {2}}) == 2);
  CHECK(fastest_of({{3}, {1, 1, 1, -1}, {2}}) == 2);
  CHECK(fastest_of({{-1}, {1}}) == 0);
}

TEST_CASE("the fastest algorithm of a library is found by trials", "[gemm]") {
  FakeGemms library;
  const Gemm gemm{.rows = 8, .columns = 8, .depth = 8};
  CHECK(fastest_algorithm(library, gemm) == algorithm_number(2));
  library.times = {1, 2, 3};
  CHECK_FALSE(fastest_algorithm(library, gemm));
  library.times = {1};
  CHECK_FALSE(fastest_algorithm(library, gemm));
  library.times = {3, 2, 1};
  library.has_memory = false;
  CHECK_FALSE(fastest_algorithm(library, gemm));
}

TEST_CASE("a product is described by the sizes and the storage of its operands", "[gemm]") {
  const auto wide = matrix(8, 64);
  const auto gemm = gemm_of({.out = at::empty({8, 24}, at::kFloat),
                             .a = wide.narrow(1, 32, 16),
                             .b = matrix(24, 16).t(),
                             .beta = 1});
  REQUIRE(gemm);
  CHECK(*gemm == Gemm{.rows = 8,
                      .columns = 24,
                      .depth = 16,
                      .a_stride = 64,
                      .b_stride = 16,
                      .out_stride = 24,
                      .b_transposed = true,
                      .out_type = at::kFloat,
                      .accumulates = true});
  CHECK(gemm->flops() == 2 * 8 * 24 * 16);
}

TEST_CASE("operands that an algorithm may not fit have no description", "[gemm]") {
  const auto out = at::empty({8, 24}, at::kBFloat16);
  const auto a = matrix(8, 16), b = matrix(16, 24);
  REQUIRE(gemm_of({.out = out, .a = a, .b = b, .bias = at::ones({24}, at::kBFloat16)}));
  const GemmOperands unfit[] = {
      {.out = at::empty({8, 24}), .a = matrix(8, 16, at::kFloat), .b = matrix(16, 24, at::kFloat)},
      {.out = out, .a = a, .b = matrix(16, 24, at::kHalf)},
      {.out = out, .a = matrix(8, 64).narrow(1, 4, 16), .b = b},  // its address is not aligned
      {.out = out, .a = matrix(8, 20).narrow(1, 0, 16), .b = b},  // its rows are not
      {.out = at::empty({24, 8}, at::kBFloat16).t(), .a = a, .b = b},
      {.out = at::empty({0, 24}, at::kBFloat16), .a = matrix(0, 16), .b = b},
      {.out = out, .a = a, .b = b, .bias = at::ones({24}, at::kFloat)},
  };
  for (const auto& operands : unfit) CHECK_FALSE(gemm_of(operands));
}

TEST_CASE("a chosen algorithm is used from its step on, and only within its scope", "[gemm]") {
  FakeGemms library;
  GemmChoices choices(library, kAny);
  const auto a = matrix(8, 16), b = matrix(16, 24);
  const auto value = [&] { return ops::product(a, b)[0][0].item<double>(); };
  choices.begin_step(4);
  {
    const GemmChoices::Scope scope(&choices);
    CHECK(value() == 16);
    CHECK(value() == 16);
  }
  CHECK(choices.new_products() == 1);
  const auto products = choices.products_until(4);
  REQUIRE(products.size() == 1);
  CHECK(choices.products_until(3).empty());
  choices.add({{products[0], algorithm_number(1), 6}});
  CHECK(choices.new_products() == 0);

  const GemmChoices::Scope scope(&choices);
  choices.begin_step(5);
  CHECK(value() == 16);
  choices.begin_step(6);
  CHECK(value() == 32);
  {
    const GemmChoices::Scope none(nullptr);
    CHECK(value() == 16);
  }
  CHECK(value() == 32);
}

TEST_CASE("a product that is left to PyTorch is not timed again", "[gemm]") {
  FakeGemms library;
  GemmChoices choices(library, kAny);
  CHECK_FALSE(choices.multiply(product_of(8)));
  choices.add({{choices.products_until(0).at(0), std::nullopt, 0}});
  CHECK_FALSE(choices.multiply(product_of(8)));
  CHECK(choices.new_products() == 0);
  CHECK(library.run_products.empty());
}

TEST_CASE("the cuBLASLt that LibTorch has loaded has all functions that are called", "[gemm]") {
  CHECK(ops::has_cublas_lt());
}

TEST_CASE("small products get no choice", "[gemm]") {
  FakeGemms library;
  GemmChoices choices(library, 2 * 9 * 16 * 24);
  CHECK_FALSE(choices.multiply(product_of(8)));
  CHECK(choices.new_products() == 0);
  CHECK_FALSE(choices.multiply(product_of(9)));
  CHECK(choices.new_products() == 1);
}

TEST_CASE("products of ever new sizes get no more choices than the bound", "[gemm]") {
  FakeGemms library;
  GemmChoices choices(library, kAny);
  for (std::int64_t rows = 1; rows <= 300; ++rows) choices.multiply(product_of(rows));
  const auto products = choices.products_until(0);
  CHECK(products.size() == GemmChoices::kMost);
  std::vector<ops::GemmChoice> found;
  for (const auto& gemm : products) found.push_back({gemm, algorithm_number(1), 0});
  choices.add(found);
  choices.begin_step(1);
  for (std::int64_t rows = 301; rows <= 400; ++rows) choices.multiply(product_of(rows));
  CHECK(choices.new_products() == 0);
  CHECK((choices.all() == found));
}

TEST_CASE("the forms of a product are computed by the chosen algorithm", "[gemm]") {
  FakeGemms library;
  GemmChoices choices(library, kAny);
  const auto a = matrix(8, 16), b = matrix(16, 24);
  const auto bias = at::full({24}, 4.0, at::kBFloat16);
  const auto gradient = at::full({16, 24}, 7.0, at::kBFloat16);
  const auto all = [&] {
    const GemmChoices::Scope scope(&choices);
    const auto sum = at::full({8, 24}, 5.0, at::kBFloat16);
    ops::add_product(sum, a, b);
    ops::add_weight_gradient(a, matrix(8, 24), gradient.fill_(7), .5);
    const auto value = [](const at::Tensor& x) { return x[0][0].item<double>(); };
    return std::vector{value(ops::product(a, b)), value(ops::product(a, b, bias)), value(sum),
                       value(gradient)};
  };
  CHECK(all() == std::vector<double>{16, 20, 21, 11});
  std::vector<ops::GemmChoice> found;
  for (const auto& gemm : choices.products_until(0))
    found.push_back({gemm, algorithm_number(1), 0});
  CHECK(found.size() == 4);
  choices.add(found);
  CHECK(all() == std::vector<double>{32, 40, 37, 15});  // see FakeGemms
}
