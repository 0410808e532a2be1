#include "runtime/grpo/loss.hpp"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::grpo;
using train::ImportanceLevel;
using train::LossNormalization;
using train::LossType;

namespace {

const auto kDouble = at::TensorOptions().dtype(at::kDouble);
const std::vector<LossType> kTypes{LossType::grpo,  LossType::bnpo,  LossType::dr_grpo,
                                   LossType::dapo,  LossType::cispo, LossType::sapo,
                                   LossType::luspo, LossType::vespo};

LossInput some_input(const std::vector<std::int64_t>& lengths) {
  const Tensor counts = at::tensor(lengths);
  const auto n = counts.sum().item<std::int64_t>();
  const auto s = static_cast<std::int64_t>(lengths.size());
  const Tensor log_probs = at::randn({n}, kDouble).abs_().neg_();
  const auto near = [&] { return log_probs.add(at::randn({n}, kDouble), .3); };
  return {.log_probs = log_probs,
          .entropies = at::randn({n}, kDouble).abs_(),
          .old_log_probs = near(),
          .ref_log_probs = near(),
          .sampler_log_probs = near(),
          .sequence = at::repeat_interleave(at::arange(s), counts),
          .advantages = at::randn({s}, kDouble),
          .weights = at::full({s}, 1, kDouble),
          .entropy_threshold = {}};
}

// All options enabled.
LossSettings busy(LossType type, ImportanceLevel level) {
  LossSettings settings{.type = type, .level = level};
  settings.epsilon_high = type == LossType::cispo ? 5 : .3;
  settings.delta = 1.6;
  settings.beta = .1;
  settings.off_policy_threshold = .1;
  settings.entropy_coef = .01;
  settings.correction = train::SamplerCorrection::token_mask;
  return settings;
}

Denominators of(const std::vector<std::int64_t>& lengths, std::int64_t micro_batches) {
  Denominators by;
  by.completions = by.generation_completions = static_cast<std::int64_t>(lengths.size());
  for (const auto length : lengths) by.tokens += length;
  by.generation_tokens = by.tokens;
  by.micro_batches = micro_batches;
  by.max_completion_length = 16;
  return by;
}

// The sequences from `first` on, as a micro-batch of their own.
LossInput part(const LossInput& all, std::int64_t first, std::int64_t count) {
  const Tensor in = all.sequence.ge(first).logical_and(all.sequence.lt(first + count));
  const auto take = [&](const Tensor& x) { return x.index({in}); };
  return {.log_probs = take(all.log_probs),
          .entropies = take(all.entropies),
          .old_log_probs = take(all.old_log_probs),
          .ref_log_probs = take(all.ref_log_probs),
          .sampler_log_probs = take(all.sampler_log_probs),
          .sequence = take(all.sequence).sub(first),
          .advantages = all.advantages.narrow(0, first, count),
          .weights = all.weights.narrow(0, first, count),
          .entropy_threshold = all.entropy_threshold};
}

bool near(const Tensor& a, const Tensor& b) {
  return at::allclose(a, b, 1e-12, 1e-14, true);
}

std::vector<double> host(const Tensor& x) {
  return {x.const_data_ptr<double>(), x.const_data_ptr<double>() + x.numel()};
}

}  // namespace

TEST_CASE("the sum over micro-batches and ranks has the same loss, gradient and metrics",
          "[loss]") {
  const auto type = GENERATE(from_range(kTypes));
  const auto level = GENERATE(ImportanceLevel::token, ImportanceLevel::sequence);
  if (type == LossType::bnpo) return;  // bnpo is a mean of micro-batch means
  CAPTURE(static_cast<int>(type));
  const std::vector<std::int64_t> lengths{3, 9, 0, 1, 14, 2, 7};
  const auto all = some_input(lengths);
  const auto settings = busy(type, level);
  const auto by = of(lengths, 1);
  const auto whole = loss(all, settings, by);
  for (const std::int64_t each : {1, 2, 3}) {
    CAPTURE(each);
    Tensor value = at::zeros({}, kDouble);
    std::vector<Tensor> gradients, entropies;
    LossMetrics metrics;
    for (std::int64_t first = 0; first < 7; first += each) {
      const auto got =
          loss(part(all, first, std::min<std::int64_t>(each, 7 - first)), settings, by);
      value.add_(got.value);
      gradients.push_back(got.log_prob_gradient);
      entropies.push_back(got.entropy_gradient);
      metrics.add(got.metrics);
    }
    CHECK(near(value, whole.value));
    CHECK(near(at::cat(gradients), whole.log_prob_gradient));
    CHECK(near(at::cat(entropies), whole.entropy_gradient));
    CHECK(near(metrics.sums, whole.metrics.sums));
    CHECK(near(metrics.maxima, whole.metrics.maxima));
  }
}

TEST_CASE("a completion with weight 0 changes nothing, whatever its values are", "[loss]") {
  const auto type = GENERATE(from_range(kTypes));
  const auto level = GENERATE(ImportanceLevel::token, ImportanceLevel::sequence);
  const std::vector<std::int64_t> lengths{5, 3, 8};
  auto all = some_input({5, 3, 8, 4});
  const auto settings = busy(type, level);
  const auto by = of(lengths, 1);
  const auto without = loss(part(all, 0, 3), settings, by);

  all.weights[3].fill_(0);
  const double bad =
      GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  for (auto* numbers : {&all.log_probs, &all.old_log_probs, &all.ref_log_probs,
                        &all.sampler_log_probs, &all.entropies})
    numbers->narrow(0, 16, 4).fill_(bad);
  all.advantages[3].fill_(bad);
  const auto got = loss(all, settings, by);
  CHECK(near(got.value, without.value));
  CHECK(near(got.log_prob_gradient.narrow(0, 0, 16), without.log_prob_gradient));
  CHECK(got.log_prob_gradient.narrow(0, 16, 4).abs().sum().item<double>() == 0);
  CHECK(got.entropy_gradient.narrow(0, 16, 4).abs().sum().item<double>() == 0);
  CHECK(near(got.metrics.sums, without.metrics.sums));
  CHECK(near(got.metrics.maxima, without.metrics.maxima));
}

TEST_CASE("with everything masked the loss is 0 and has no metrics", "[loss]") {
  const auto type = GENERATE(from_range(kTypes));
  auto all = some_input({5, 3});
  all.weights.fill_(0);
  auto settings = busy(type, ImportanceLevel::sequence);
  settings.top_entropy_quantile = .5;
  all.entropy_threshold = entropy_threshold(entropies_to_share(all), .5);
  const auto got = loss(all, settings, {});
  CHECK(got.value.item<double>() == 0);
  CHECK(got.log_prob_gradient.abs().sum().item<double>() == 0);
  CHECK(got.entropy_gradient.abs().sum().item<double>() == 0);
  const auto values = metric_values(settings, host(got.metrics.sums), host(got.metrics.maxima));
  CHECK(values == std::map<std::string, double>{{"loss", 0}, {"policy_loss", 0}});
}

TEST_CASE("empty completions form an empty micro-batch", "[loss]") {
  const auto type = GENERATE(from_range(kTypes));
  const auto settings = busy(type, ImportanceLevel::token);
  for (const auto& input : {some_input({0, 0}), some_input({})}) {
    const auto got = loss(input, settings, of({0, 0}, 1));
    CHECK(got.value.item<double>() == 0);
    CHECK(got.log_prob_gradient.numel() == 0);
    CHECK(got.entropy_gradient.numel() == 0);
    CHECK(got.metrics.sums.abs().sum().item<double>() == 0);
    CHECK(entropy_threshold(entropies_to_share(input), .5).isnan().item<bool>());
  }
}

TEST_CASE("an empty completion is counted as a completion", "[loss]") {
  LossSettings settings{.type = LossType::grpo};
  auto all = some_input({4, 0});
  all.sampler_log_probs = Tensor();
  const auto both = loss(all, settings, of({4, 0}, 1));
  const LossInput one{.log_probs = all.log_probs,
                      .entropies = all.entropies,
                      .old_log_probs = all.old_log_probs,
                      .ref_log_probs = {},
                      .sampler_log_probs = {},
                      .sequence = all.sequence,
                      .advantages = all.advantages.narrow(0, 0, 1),
                      .weights = all.weights.narrow(0, 0, 1),
                      .entropy_threshold = {}};
  CHECK(near(both.value.mul(2), loss(one, settings, of({4}, 1)).value));
}

TEST_CASE("on-policy the ratio is 1 and has a gradient", "[loss]") {
  const auto type = GENERATE(from_range(kTypes));
  const auto level = GENERATE(ImportanceLevel::token, ImportanceLevel::sequence);
  auto all = some_input({5, 1, 6});
  all.old_log_probs = all.log_probs;
  auto without = all;
  without.old_log_probs = Tensor();
  const auto settings = busy(type, level);
  const auto a = loss(all, settings, of({5, 1, 6}, 1));
  const auto b = loss(without, settings, of({5, 1, 6}, 1));
  CHECK(near(a.value, b.value));
  CHECK(near(a.log_prob_gradient, b.log_prob_gradient));
  CHECK(a.log_prob_gradient.abs().sum().item<double>() > 0);
}

TEST_CASE("on-policy the gradient does not depend on the scores", "[loss]") {
  const auto type = GENERATE(from_range(kTypes));
  const auto level = GENERATE(ImportanceLevel::token, ImportanceLevel::sequence);
  auto settings = busy(type, level);
  settings.beta = 0;
  settings.off_policy_threshold.reset();
  settings.correct_sampler = GENERATE(true, false);
  auto all = some_input({5, 1, 6});
  all.old_log_probs = Tensor();
  if (settings.correct_sampler) all.sampler_log_probs = Tensor();
  REQUIRE_FALSE(gradient_needs_scores(all, settings));
  auto other = all;
  other.log_probs = other.entropies = at::zeros_like(all.log_probs);
  const auto a = loss(all, settings, of({5, 1, 6}, 1));
  const auto b = loss(other, settings, of({5, 1, 6}, 1));
  CHECK(host(a.log_prob_gradient) == host(b.log_prob_gradient));
  CHECK(host(a.entropy_gradient) == host(b.entropy_gradient));
  CHECK(a.log_prob_gradient.abs().sum().item<double>() > 0);
}

TEST_CASE("whatever compares the policy with another makes the gradient depend on the scores",
          "[loss]") {
  auto all = some_input({5, 1, 6});
  all.old_log_probs = all.sampler_log_probs = Tensor();
  LossSettings settings;
  CHECK_FALSE(gradient_needs_scores(all, settings));
  SECTION("an older policy") {
    all.old_log_probs = all.log_probs;
  }
  SECTION("a corrected sampler") {
    all.sampler_log_probs = all.log_probs;
  }
  SECTION("the reference") {
    settings.beta = .1;
  }
  SECTION("a mask of what is far from the policy") {
    settings.off_policy_threshold = .1;
  }
  SECTION("a mask by entropy") {
    all.entropy_threshold = at::zeros({}, kDouble);
  }
  CHECK(gradient_needs_scores(all, settings));
}

TEST_CASE("TRL's denominator equals the window's if a step is a generation batch", "[loss]") {
  const auto all = some_input({5, 1, 6});
  auto by = of({5, 1, 6}, 2);
  LossSettings settings;
  const auto window = loss(all, settings, by).value;
  settings.normalization = LossNormalization::trl;
  CHECK(near(loss(all, settings, by).value, window));
  // Two steps of one generation batch of 20 tokens: each counts 10 tokens.
  by.generation_completions = 6;
  by.generation_tokens = 20;
  CHECK(near(loss(all, settings, by).value, window.mul(12.0 / 10)));
}

TEST_CASE("the entropy threshold covers the tokens in the loss of all ranks", "[loss]") {
  auto all = some_input({4, 4});
  all.entropies = at::tensor({1.0, 2.0, 3.0, 4.0, 90.0, 91.0, 92.0, 93.0}, kDouble);
  all.weights[1].fill_(0);
  const auto shared = entropies_to_share(all);
  CHECK(entropy_threshold(shared, .5).item<double>() == 2.5);
  const auto fewer = at::full({5}, std::numeric_limits<double>::quiet_NaN(), kDouble);
  CHECK(entropy_threshold(at::cat({shared, fewer}), .5).item<double>() == 2.5);
  CHECK(entropy_threshold(at::cat({shared, fewer}), 1).item<double>() == 1);

  LossSettings settings{.top_entropy_quantile = .5};
  all.entropy_threshold = entropy_threshold(shared, .5);
  const auto got = loss(all, settings, of({4}, 1));
  CHECK(got.log_prob_gradient.narrow(0, 0, 2).abs().sum().item<double>() == 0);
  CHECK(got.metrics.sums[static_cast<int>(Sum::learning_tokens)].item<double>() == 2);
  CHECK(got.metrics.sums[static_cast<int>(Sum::learning_entropy)].item<double>() == 7);
}

TEST_CASE("a token without a sampler log-prob is not corrected", "[loss]") {
  auto all = some_input({3, 3});
  all.sampler_log_probs = all.old_log_probs.clone();
  LossSettings settings;
  const auto exact = loss(all, settings, of({3, 3}, 1));
  all.sampler_log_probs[1].fill_(std::numeric_limits<double>::quiet_NaN());
  const auto got = loss(all, settings, of({3, 3}, 1));
  CHECK(near(got.value, exact.value));
  CHECK(got.metrics.sums[static_cast<int>(Sum::sampler_tokens)].item<double>() == 5);
}

TEST_CASE("an infinite ratio is clipped and has gradient 0", "[loss]") {
  auto all = some_input({1});
  all.old_log_probs = all.log_probs.sub(1000);
  all.sampler_log_probs = Tensor();
  all.advantages.fill_(1);
  const auto got = loss(all, LossSettings{}, of({1}, 1));
  CHECK(got.value.item<double>() == Approx(-1.2));
  CHECK(got.log_prob_gradient.item<double>() == 0);
}

TEST_CASE("a completion masked as off-policy has no effect, however far off it is", "[loss]") {
  auto all = some_input({1, 3});
  all.sampler_log_probs = Tensor();
  all.old_log_probs = all.log_probs.clone();
  all.old_log_probs[0].sub_(1000);  // its ratio is infinite
  all.advantages[0] = -1;
  LossSettings settings;
  CHECK_FALSE(loss(all, settings, of({1, 3}, 1)).value.isfinite().item<bool>());
  settings.off_policy_threshold = -2000;  // no policy is near enough
  all.advantages[1] = 1;
  const auto got = loss(all, settings, of({1, 3}, 1));
  CHECK(got.value.isfinite().item<bool>());
  CHECK(got.log_prob_gradient[0].item<double>() == 0);
  CHECK(got.log_prob_gradient.narrow(0, 1, 3).abs().sum().item<double>() > 0);
}

TEST_CASE("missing loss inputs are reported", "[loss]") {
  auto all = some_input({2});
  all.ref_log_probs = Tensor();
  LossSettings settings;
  settings.beta = .1;
  CHECK_THROWS_WITH(loss(all, settings, of({2}, 1)),
                    "loss: beta needs the reference model's log-probs");
  settings = {.type = LossType::vespo};
  CHECK_THROWS_WITH(loss(all, settings, of({2}, 1)),
                    "loss: vespo supports sampler correction by token only");
}
