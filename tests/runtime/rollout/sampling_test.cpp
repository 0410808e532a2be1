#include "runtime/kernels/sampling.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "tests/support/catch.hpp"

namespace {

using namespace mgpu;
using at::Tensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows with seeds 0, 1, ... that have sampled `before` tokens.
ops::Draw draw(const Tensor& logits, const ops::Sampling& sampling, int before = 0) {
  const auto rows = logits.size(0);
  const ops::Draw drawn{at::arange(rows, at::kLong), at::full({rows}, before, at::kInt),
                        at::empty({rows}, at::kInt), at::empty({rows}, at::kFloat)};
  ops::sample(logits, sampling, drawn);
  return drawn;
}

TEST_CASE("with temperature 0 the first of the most likely tokens is sampled", "[sampling]") {
  const auto logits = at::tensor({-3.F, 2.F, 2.F, -kInfinity}).view({1, 4});
  const auto drawn = draw(logits, {.temperature = 0});
  CHECK(drawn.tokens.item<int>() == 1);
  CHECK(std::abs(drawn.log_probs.item<double>() - at::log_softmax(logits, 1)[0][1].item<double>()) <
        1e-6);
}

TEST_CASE("logits without a finite softmax give no token and do not affect other rows",
          "[sampling]") {
  const auto bad = GENERATE(kNan, kInfinity);
  const auto logits = at::randn({3, 8});
  const auto alone = draw(logits, {});
  auto spoilt = logits.clone();
  spoilt[1][5].fill_(bad);
  const auto drawn = draw(spoilt, {});
  CHECK(drawn.tokens[1].item<int>() == -1);
  CHECK(std::isnan(drawn.log_probs[1].item<double>()));
  for (const int row : {0, 2}) CHECK(drawn.tokens[row].equal(alone.tokens[row]));
  CHECK(draw(at::full({1, 8}, -kInfinity), {}).tokens.item<int>() == -1);
}

TEST_CASE("a token with probability 0 is never sampled", "[sampling]") {
  auto logits = at::zeros({500, 6});
  for (const int token : {0, 3, 5}) logits.select(1, token).fill_(-kInfinity);
  const auto tokens = draw(logits, {}).tokens;
  for (int token = 0; token < 6; ++token) {
    CAPTURE(token);
    const bool possible = token == 1 || token == 2 || token == 4;
    CHECK(tokens.eq(token).any().item<bool>() == possible);
  }
}

TEST_CASE("a sample depends on the row's seed and on the number of earlier samples", "[sampling]") {
  const auto logits = at::zeros({64, 1000});
  const auto first = draw(logits, {}).tokens;
  CHECK(first.equal(draw(logits, {}).tokens));
  CHECK(first.narrow(0, 0, 5).equal(draw(logits.narrow(0, 0, 5), {}).tokens));
  CHECK(first.eq(first[0]).sum().item<int>() < 5);
  CHECK(first.eq(draw(logits, {}, 1).tokens).sum().item<int>() < 5);
}

TEST_CASE("tokens that tie with the last kept token are kept", "[sampling]") {
  const auto logits = at::tensor({1.F, 3.F, 1.F, 0.F, 1.F}).repeat({1000, 1});
  const auto sampling = GENERATE(ops::Sampling{.top_k = 2}, ops::Sampling{.top_p = .75});
  const auto tokens = draw(logits, sampling).tokens;
  for (const int token : {0, 1, 2, 4}) CHECK(tokens.eq(token).any().item<bool>());
  CHECK(!tokens.eq(3).any().item<bool>());
}

}  // namespace
