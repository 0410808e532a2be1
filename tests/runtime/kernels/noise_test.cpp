#include "runtime/kernels/noise.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/var.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "tests/support/catch.hpp"

using namespace mgpu;

namespace {

constexpr std::int64_t kWidth = 512;
constexpr double kAlpha = 5;

// Two sequences, of 100 and of 1,000 tokens.
at::Tensor noise(std::uint64_t seed) {
  auto x = at::zeros({1100, kWidth});
  ops::add_noise_(x, at::tensor({0, 100, 1100}, at::kInt), kAlpha, seed);
  return x;
}

void check_uniform(const at::Tensor& part, double limit) {
  CHECK(part.abs().max().item<double>() <= limit);
  CHECK(part.abs().max().item<double>() > .999 * limit);
  CHECK(std::abs(part.mean().item<double>()) < .01 * limit);
  CHECK(std::abs(part.var().item<double>() / (limit * limit / 3) - 1) < .02);
}

}  // namespace

TEST_CASE("the noise of a sequence is uniform and follows from its own length", "[noise]") {
  const auto x = noise(7);
  check_uniform(x.narrow(0, 0, 100), kAlpha / std::sqrt(100.0 * kWidth));
  check_uniform(x.narrow(0, 100, 1000), kAlpha / std::sqrt(1000.0 * kWidth));
}

TEST_CASE("a seed repeats its noise, and another seed has other noise", "[noise]") {
  CHECK(at::equal(noise(7), noise(7)));
  const auto one = noise(7), other = noise(8), far = noise(7ULL + (1ULL << 32));
  for (const auto& another : {other, far}) {
    const auto along = at::mul(one, another).mean().item<double>();
    CHECK(std::abs(along) < .01 * at::mul(one, one).mean().item<double>());
  }
}
