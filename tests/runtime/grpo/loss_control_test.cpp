#include "runtime/grpo/loss_control.hpp"

#include <cmath>

#include "tests/support/catch.hpp"

using namespace mgpu::grpo;

namespace {

constexpr AdaptiveEntropy::Options kAdaptive{
    .adaptive = true, .target = .2, .delta = .05, .min = 0, .max = 1};

LossControl control_of(double beta, std::optional<double> target_kl, double entropy_coef,
                       const AdaptiveEntropy::Options& entropy = {}) {
  return {LossSettings{.epsilon = .3}, AdaptiveKl(beta, target_kl),
          AdaptiveEntropy(entropy_coef, entropy)};
}

}  // namespace

TEST_CASE("coefficients adapt to a step's metrics and are reported with them", "[control]") {
  auto control = control_of(.2, .01, .1, kAdaptive);
  CHECK(control.settings().epsilon == .3);
  CHECK(control.settings().beta == .2);
  CHECK(control.settings().entropy_coef == 0);  // applied only after a low entropy
  std::map<std::string, double> metrics{{"kl", .021}, {"entropy", .1}};
  control.adapt(metrics);
  CHECK(metrics.at("beta") == .2);  // that of the step
  CHECK(metrics.at("entropy_coef") == Approx(.15));
  CHECK(control.settings().beta == Approx(.3));
  CHECK(control.settings().entropy_coef == Approx(.15));
}

TEST_CASE("the entropy coefficient follows the tokens that a quantile keeps", "[control]") {
  auto control = control_of(0, {}, .1, kAdaptive);
  std::map<std::string, double> metrics{{"entropy", .1}, {"entropy/kept", .5}};
  control.adapt(metrics);
  CHECK(metrics.at("entropy_coef") == Approx(.05));  // .5 is above the target of .2
}

TEST_CASE("coefficients that are not used are not reported", "[control]") {
  auto control = control_of(0, {}, 0);
  std::map<std::string, double> metrics{{"entropy", .1}};
  control.adapt(metrics);
  CHECK(metrics.size() == 1);
  CHECK_FALSE(control.has_reference());
}

TEST_CASE("only advantages matter without beta, entropy term and entropy quantile", "[control]") {
  CHECK(control_of(0, {}, 0).only_advantages_matter());
  CHECK_FALSE(control_of(.1, {}, 0).only_advantages_matter());
  CHECK_FALSE(control_of(0, {}, .1).only_advantages_matter());
  CHECK_FALSE(control_of(0, {}, 0, kAdaptive).only_advantages_matter());
  CHECK_FALSE(LossControl(LossSettings{.top_entropy_quantile = .5}, AdaptiveKl(0, {}),
                          AdaptiveEntropy(0, {}))
                  .only_advantages_matter());
  // Its loss is a mean over the tokens of a micro-batch.
  CHECK_FALSE(LossControl(LossSettings{.type = mgpu::train::LossType::bnpo}, AdaptiveKl(0, {}),
                          AdaptiveEntropy(0, {}))
                  .only_advantages_matter());
}

TEST_CASE("a saved state replaces only the coefficients that adapt", "[control]") {
  const LossControl::State saved{.beta = .07, .entropy = {.coefficient = .3, .last = .1}};
  auto adaptive = control_of(.2, .01, .1, kAdaptive);
  adaptive.restore(saved);
  CHECK((adaptive.state() == saved));
  auto constant = control_of(.2, {}, .1);
  constant.restore(saved);
  CHECK(constant.settings().beta == .2);
  CHECK(constant.settings().entropy_coef == .1);
  // A run without beta saved 0.
  adaptive.restore({.beta = 0, .entropy = saved.entropy});
  CHECK(adaptive.settings().beta == .07);
}
