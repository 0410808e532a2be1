#include "runtime/train/pacer.hpp"

#include <cmath>

#include "tests/support/catch.hpp"

using Catch::Matchers::Contains;
using mgpu::train::Pacer;
using mgpu::train::Sharding;

namespace {

constexpr std::size_t kAhead = 2;
using Numbers = std::vector<double>;

double ratio(const Numbers& weights) {
  REQUIRE(weights.size() == 2);
  return weights[0] / weights[1];
}

}  // namespace

TEST_CASE("uniform and weighted shares ignore the measured times", "[pacer]") {
  Pacer uniform(Sharding::uniform, {}, 2, kAhead);
  Pacer weighted(Sharding::weighted, {1, 3}, 2, kAhead);
  for (int step = 0; step < 20; ++step) {
    uniform.record_times(step, {1, 2}, {1, 1});
    weighted.record_times(step, {1, 2}, {1, 1});
  }
  CHECK(uniform.weights(30).empty());
  CHECK(uniform.shares_line(30).empty());
  CHECK(weighted.weights(30) == Numbers{1, 3});
  CHECK_THROWS_WITH(Pacer(Sharding::weighted, {1, 3}, 3, kAhead),
                    Contains("one gpu_weights entry per rank: 3 ranks, 2 weights"));
}

TEST_CASE("a rank that is twice as slow gets half as much work after some steps", "[pacer]") {
  Pacer pacer(Sharding::adaptive, {}, 2, kAhead);
  CHECK(pacer.weights(0) == Numbers{1, 1});
  double before = 1;
  for (int step = 0; step < 60; ++step) {
    // The ranks compute 1 and 1/2 unit of cost per second, whatever their shares.
    const auto weights = pacer.weights(step);
    pacer.record_times(step, {weights[0], 2 * weights[1]}, weights);
    CHECK(ratio(weights) >= before);
    before = ratio(weights);
  }
  CHECK(std::abs(ratio(pacer.weights(60)) - 2) < 0.02);

  SECTION("and the same share again when it has recovered") {
    for (int step = 60; step < 120; ++step) pacer.record_times(step, {1, 1}, {1, 1});
    CHECK(std::abs(ratio(pacer.weights(120)) - 1) < 0.01);
  }
}

TEST_CASE("no rank gets more than four times the work of another", "[pacer]") {
  Pacer pacer(Sharding::adaptive, {}, 2, kAhead);
  for (int step = 0; step < 200; ++step) pacer.record_times(step, {1, 1000}, {1, 1});
  CHECK(ratio(pacer.weights(200)) <= 4);
  CHECK(ratio(pacer.weights(200)) > 3);
}

TEST_CASE("a quick and a slow loader get the same weights", "[pacer]") {
  // While step k runs, the trainer takes step k + 1 from the loader and then reports the times of
  // step k - 1. By then a quick loader has requested all weights that it can, a slow one only those
  // up to step k + 1.
  Pacer quick(Sharding::adaptive, {}, 2, kAhead), slow(Sharding::adaptive, {}, 2, kAhead);
  std::vector<Numbers> of_quick, of_slow;
  for (int k = 0; k < 100; ++k) {
    while (of_quick.size() <= k + 1 + kAhead + 1)
      of_quick.push_back(quick.weights(static_cast<int>(of_quick.size())));
    while (of_slow.size() <= static_cast<std::size_t>(k) + 1)
      of_slow.push_back(slow.weights(static_cast<int>(of_slow.size())));
    if (k == 0) continue;
    const double seconds = k < 50 ? 2 : 0.5;
    quick.record_times(k - 1, {1, seconds}, {1, 1});
    slow.record_times(k - 1, {1, seconds}, {1, 1});
  }
  for (std::size_t step = 0; step < of_slow.size(); ++step) {
    CAPTURE(step);
    CHECK(of_quick[step] == of_slow[step]);
  }
  CHECK(ratio(of_slow[50]) > 1.5);
  CHECK(ratio(of_slow[99]) < 1);
}

TEST_CASE("a step in which a rank had no work does not change the shares", "[pacer]") {
  Pacer pacer(Sharding::adaptive, {}, 2, kAhead);
  pacer.record_times(0, {1, 0.01}, {1, 0});
  pacer.record_times(1, {1, 0}, {1, 1});
  CHECK(pacer.weights(50) == Numbers{1, 1});
}

TEST_CASE("shares are reported at first and when they have changed", "[pacer]") {
  Pacer weighted(Sharding::weighted, {1, 3}, 2, kAhead);
  CHECK(weighted.shares_line(0) == "work shares by rank: 0.250 0.750");
  CHECK(weighted.shares_line(100).empty());

  Pacer adaptive(Sharding::adaptive, {}, 2, kAhead);
  CHECK(adaptive.shares_line(0) == "work shares by rank: 0.500 0.500");
  for (int step = 0; step < 60; ++step) adaptive.record_times(step, {1, 2}, {1, 1});
  CHECK(adaptive.shares_line(59 + kAhead + 4) == "work shares by rank: 0.667 0.333");
  CHECK(adaptive.shares_line(80).empty());
}
