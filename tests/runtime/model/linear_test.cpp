#include "runtime/model/linear.hpp"

#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <limits>

#include "tests/support/catch.hpp"

using namespace mgpu::model;

namespace {

// y = x + scale * adapter, of size 2 and LoRA rank 1.
Linear with_adapter(double value) {
  Linear weights;
  weights.weight = at::eye(2);
  weights.all_a = at::full({1, 2}, value);
  weights.adapters.push_back({weights.all_a, at::ones({2, 1}), 0, 2});
  return weights;
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
