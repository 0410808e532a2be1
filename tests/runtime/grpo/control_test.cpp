#include "runtime/grpo/control.hpp"

#include <cmath>

#include "tests/support/catch.hpp"

using namespace mgpu::grpo;

TEST_CASE("beta rises above twice the target and falls below half of it", "[control]") {
  AdaptiveKl kl(.2, .01);
  kl.step(.021);
  CHECK(kl.beta() == Approx(.3));
  kl.step(.02);
  kl.step(.005);
  CHECK(kl.beta() == Approx(.3));
  kl.step(.004);
  CHECK(kl.beta() == Approx(.15));
  kl.step(std::nan(""));
  CHECK(kl.beta() == Approx(.15));
  for (int i = 0; i < 20; ++i) kl.step(0);
  CHECK(kl.beta() == .01);
  for (int i = 0; i < 20; ++i) kl.step(1);
  CHECK(kl.beta() == 1);
}

TEST_CASE("a beta below the range is not raised by a divergence of 0", "[control]") {
  AdaptiveKl low(.001, .01);
  low.step(0);
  CHECK(low.beta() == .001);
  low.step(.01);
  CHECK(low.beta() == .001);
  low.step(.03);
  CHECK(low.beta() == Approx(.0015));
  AdaptiveKl high(2, .01);
  high.step(1);
  CHECK(high.beta() == 2);
  high.step(0);
  CHECK(high.beta() == 1);
}

TEST_CASE("beta without a target is constant", "[control]") {
  AdaptiveKl kl(.002, {});
  kl.step(100);
  CHECK(kl.beta() == .002);
}

TEST_CASE("the entropy coefficient is applied only after a low entropy", "[control]") {
  AdaptiveEntropy entropy(.1, {.adaptive = true, .target = .2, .delta = .05, .min = 0, .max = .2});
  CHECK(entropy.applied() == 0);
  entropy.step(.2);
  CHECK(entropy.applied() == Approx(.15));
  entropy.step(.1);
  entropy.step(.1);
  CHECK(entropy.applied() == .2);
  entropy.step(.3);
  CHECK(entropy.applied() == 0);
  CHECK(entropy.coefficient() == Approx(.15));

  SECTION("and continues from the saved state") {
    AdaptiveEntropy other(.1, {.adaptive = true, .target = .2, .delta = .05, .min = 0, .max = .2});
    other.restore(entropy.state());
    for (const double h : {.1, .3, .15}) {
      entropy.step(h);
      other.step(h);
      CHECK(entropy.applied() == other.applied());
    }
  }
  SECTION("and does not fall below its minimum") {
    for (int i = 0; i < 9; ++i) entropy.step(1);
    CHECK(entropy.coefficient() == 0);
    CHECK(entropy.enabled());
  }
}

TEST_CASE("an entropy coefficient that is not adaptive is constant", "[control]") {
  AdaptiveEntropy entropy(.01, {});
  entropy.step(5);
  CHECK(entropy.applied() == .01);
  CHECK_FALSE(AdaptiveEntropy(0, {}).enabled());
}
