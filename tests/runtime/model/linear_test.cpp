#include "runtime/model/linear.hpp"

#include <ATen/ops/allclose.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>

#include "tests/support/catch.hpp"

using namespace mgpu::model;

namespace {

// y = x + scale * adapter, of size 2 and LoRA rank 1.
Linear with_adapter(double value) {
  Linear weights;
  weights.weight = at::eye(2);
  weights.all_a = at::full({1, 2}, value);
  weights.adapters.push_back({weights.all_a, at::ones({2, 1}), {}, 0, 2});
  return weights;
}

// DoRA on two of three joined layers, with a bias.
Linear with_dora() {
  Linear weights;
  weights.weight = at::randn({9, 5});
  weights.bias = at::randn({9});
  weights.all_a = at::randn({4, 5});
  for (const int i : {0, 1})
    weights.adapters.push_back(
        {weights.all_a.narrow(0, 2 * i, 2), at::randn({3, 2}), at::rand({3}).add_(1), 6 * i, 3});
  return weights;
}

Linear zeros_like(const Linear& weights) {
  Linear zeros;
  zeros.all_a = at::zeros_like(weights.all_a);
  for (std::size_t i = 0; i < weights.adapters.size(); ++i) {
    const auto& adapter = weights.adapters[i];
    zeros.adapters.push_back({zeros.all_a.narrow(0, 2 * static_cast<std::int64_t>(i), 2),
                              at::zeros_like(adapter.b), at::zeros_like(adapter.magnitude),
                              adapter.begin, adapter.size});
  }
  return zeros;
}

// Layers like q, k and v with 64, 32 and 32 outputs, of which the first and the last have adapters.
Linear with_two_adapters(std::int64_t rank, bool bias) {
  Linear weights;
  weights.weight = at::randn({128, 48});
  if (bias) weights.bias = at::randn({128});
  weights.all_a = at::randn({2 * rank, 48});
  weights.adapters.push_back({weights.all_a.narrow(0, 0, rank), at::randn({64, rank}), {}, 0, 64});
  weights.adapters.push_back(
      {weights.all_a.narrow(0, rank, rank), at::randn({32, rank}), {}, 96, 32});
  return weights;
}

// Layers like q, k and v, frozen, in fp8: adapters on the first and the last, and perhaps a bias.
Linear in_fp8(bool adapters, bool bias) {
  auto weights = with_two_adapters(8, bias);
  for (const auto& [begin, size] : {std::pair{0, 64}, {64, 32}, {96, 32}})
    weights.packed.emplace_back(mgpu::ops::quantized(weights.weight.narrow(0, begin, size)));
  weights.weight = Tensor();
  if (!adapters) weights.adapters.clear();
  return weights;
}

// The same with the frozen weights in fp32.
Linear dequantized(Linear weights) {
  weights.weight = at::zeros({128, 48});
  std::int64_t begin = 0;
  for (const auto& part : weights.packed) {
    const auto& matrix = std::get<mgpu::ops::Fp8>(part);
    mgpu::ops::dequantize(matrix, weights.weight.narrow(0, begin, matrix.rows));
    begin += matrix.rows;
  }
  weights.packed.clear();
  return weights;
}

Linear gradients_like(const Linear& weights) {
  Linear zeros;
  if (weights.adapters.empty()) return zeros;
  zeros.all_a = at::zeros_like(weights.all_a);
  for (const auto& adapter : weights.adapters)
    zeros.adapters.push_back({{}, at::zeros_like(adapter.b), {}, adapter.begin, adapter.size});
  return zeros;
}

double error(const Tensor& got, const Tensor& wanted) {
  return got.sub(wanted).norm().item<double>() / wanted.norm().item<double>();
}

double along(const Tensor& a, const Tensor& b) {
  return at::mul(a, b).sum().item<double>();
}

float first_of(const Tensor& y) {
  return y[0][0].item<float>();
}

}  // namespace

TEST_CASE("a linear layer adds its adapter, scaled", "[linear]") {
  LinearSaved saved;
  CHECK(first_of(linear(at::ones({1, 2}), with_adapter(3), {.scale = .5}, saved)) == 4);
}

TEST_CASE("an adapter with the scale 0 is left out and not multiplied by 0", "[linear]") {
  LinearSaved saved;
  const auto broken = with_adapter(std::numeric_limits<double>::quiet_NaN());
  CHECK(first_of(linear(at::ones({1, 2}), broken, {.scale = 0}, saved)) == 1);
  CHECK_FALSE(saved.low.defined());
}

// The output is linear in both, so that differences are exact up to rounding.
TEST_CASE(
    "DoRA's gradients of the input and of the magnitudes are those of its output, with dropout",
    "[linear]") {
  auto weights = with_dora();
  const AdapterUse use{.scale = .5, .dropout = GENERATE(0., .4), .seed = 9};
  const auto x = at::randn({7, 5}), dx = at::randn({7, 5}), gy = at::randn({7, 9});
  LinearSaved saved, unused;
  const auto y = linear(x, weights, use, saved);
  const auto gradients = zeros_like(weights);
  const auto gx = linear_backward(gy, x, weights, gradients, use, saved);
  CHECK(along(linear(x.add(dx), weights, use, unused).sub(y), gy) ==
        Approx(along(dx, gx)).epsilon(1e-4));
  for (std::size_t i : {0U, 1U}) {
    const auto change = at::randn({3});
    weights.adapters[i].magnitude.add_(change);
    CHECK(along(linear(x, weights, use, unused).sub(y), gy) ==
          Approx(along(change, gradients.adapters[i].magnitude)).epsilon(1e-4));
    weights.adapters[i].magnitude.sub_(change);
  }
}

TEST_CASE("DoRA whose magnitudes are the lengths of the rows computes what LoRA does", "[linear]") {
  auto weights = with_dora();
  const auto lengths = row_lengths_of(weights, .5);
  for (auto& adapter : weights.adapters)
    adapter.magnitude.copy_(lengths.narrow(0, adapter.begin, 3));
  const auto x = at::randn({7, 5});
  LinearSaved saved;
  const auto dora = linear(x, weights, {.scale = .5}, saved);
  weights.factors = factors_of(weights, .5);
  CHECK(at::allclose(linear(x, weights, {.scale = .5}, saved), dora));
  for (auto& adapter : weights.adapters) adapter.magnitude = Tensor();
  CHECK(at::allclose(linear(x, weights, {.scale = .5}, saved), dora, 1e-4, 1e-5));
}

TEST_CASE("a linear layer in parts gives the same output when its adapters are added", "[linear]") {
  const std::int64_t rank = GENERATE(8, 16, 32), rows = GENERATE(1, 7, 128);
  auto weights = with_two_adapters(rank, GENERATE(false, true));
  const auto x = at::randn({rows, 48});
  LinearSaved saved;
  const auto whole = linear(x, weights, {.scale = .5}, saved);
  const auto parts = linear_in_parts(x, weights, .5);
  CHECK(at::allclose(parts.y.narrow(1, 64, 32), whole.narrow(1, 64, 32), 1e-4, 1e-4));
  CHECK_FALSE(at::allclose(parts.y, whole, 1e-2, 1e-2));
  mgpu::ops::add_low_rank_(parts.y, parts.added);
  CHECK(at::allclose(parts.y, whole, 1e-4, 1e-3));
}

TEST_CASE("a linear layer without LoRA adapters in use has no part to add", "[linear]") {
  const auto x = at::randn({7, 5});
  LinearSaved saved;
  const auto dora = with_dora();
  const auto with = linear_in_parts(x, dora, .5);
  CHECK(at::allclose(with.y, linear(x, dora, {.scale = .5}, saved)));
  CHECK_FALSE(with.added.low.defined());
  const auto without = linear_in_parts(x, dora, 0);
  CHECK(at::allclose(without.y, linear(x, dora, {.scale = 0}, saved)));
  CHECK_FALSE(without.added.low.defined());
}

TEST_CASE("a frozen layer in fp8 computes what its dequantized weights do, but for rounding",
          "[linear][fp8]") {
  const bool adapters = GENERATE(false, true), bias = GENERATE(false, true);
  const double dropout = GENERATE(0., .4);
  const AdapterUse use{.scale = .5, .dropout = dropout, .seed = 9};
  const auto weights = in_fp8(adapters, bias), exact = dequantized(weights);
  const auto x = at::randn({7, 48}), gy = at::randn({7, 128});
  LinearSaved saved, exact_saved;
  const auto y = linear(x, weights, use, saved), wanted = linear(x, exact, use, exact_saved);
  CHECK(error(y, wanted) < .04);
  CHECK(error(y, wanted) > 1e-3);  // x is rounded
  const auto gradients = gradients_like(weights), exact_gradients = gradients_like(weights);
  const auto gx = linear_backward(gy, x, weights, gradients, use, saved);
  CHECK(error(gx, linear_backward(gy, x, exact, exact_gradients, use, exact_saved)) < .04);
  if (!adapters) return;
  CHECK(at::allclose(gradients.all_a, exact_gradients.all_a));
  CHECK(at::allclose(gradients.adapters[1].b, exact_gradients.adapters[1].b));
  const auto parts = linear_in_parts(x, weights, .5);
  CHECK_FALSE(parts.added.low.defined());
}

TEST_CASE("a trained layer in fp8 has the exact gradient of its weight", "[linear][fp8]") {
  Linear weights, gradients;
  weights.weight = at::randn({160, 200});
  auto exact = weights;
  weights.in_fp8 = true;
  gradients.weight = at::zeros({160, 200});
  const auto x = at::randn({7, 200}), gy = at::randn({7, 160});
  LinearSaved saved;
  const auto y = linear(x, weights, {}, saved), wanted = linear(x, exact, {}, saved);
  CHECK(error(y, wanted) < .05);
  CHECK(error(y, wanted) > 1e-3);
  const auto gx = linear_backward(gy, x, weights, gradients, {}, saved);
  CHECK(at::allclose(gradients.weight, at::mm(gy.t(), x), 1e-4, 1e-4));
  CHECK(error(gx, at::mm(gy, weights.weight)) < .05);
}

TEST_CASE("DoRA on a frozen layer in fp8 uses the dequantized weights", "[linear][fp8]") {
  auto weights = in_fp8(true, true);
  for (auto& adapter : weights.adapters) adapter.magnitude = at::rand({adapter.size}).add_(1);
  const auto exact = dequantized(weights);
  const auto x = at::randn({7, 48});
  LinearSaved saved, exact_saved;
  CHECK(at::allclose(linear(x, weights, {.scale = .5}, saved),
                     linear(x, exact, {.scale = .5}, exact_saved), 1e-4, 1e-4));
}
