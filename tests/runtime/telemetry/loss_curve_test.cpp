#include "runtime/telemetry/loss_curve.hpp"

#include <cmath>

#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

void check_ticks(double low, double high, int most, const std::vector<double>& expected) {
  const auto ticks = round_ticks(low, high, most);
  REQUIRE(ticks.size() == expected.size());
  for (std::size_t i = 0; i < ticks.size(); ++i)
    CHECK(std::fabs(ticks[i] - expected[i]) < 1e-9 * (high - low));
}

}  // namespace

TEST_CASE("axes are marked at round numbers", "[curve]") {
  check_ticks(0, 10, 5, {0, 2, 4, 6, 8, 10});
  check_ticks(0.13, 0.92, 9, {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9});
  check_ticks(-1, 1, 4, {-1, -0.5, 0, 0.5, 1});
  check_ticks(1, 4000, 9, {500, 1000, 1500, 2000, 2500, 3000, 3500, 4000});
  CHECK(round_ticks(1, 1, 5).empty());
  CHECK(round_ticks(0, INFINITY, 5).empty());
  CHECK(round_ticks(1e20, 1e20 + 32768, 5).size() <= 6);
}

TEST_CASE("smoothing follows the mean and does not lag behind", "[curve]") {
  Points points;
  for (int i = 0; i < 600; ++i) points.emplace_back(i, 3 + 0.01 * i + (i % 2 ? 1 : -1));
  points[300].second = kNaN;
  const auto smooth = smoothed(points);
  REQUIRE(smooth.size() == 599);
  CHECK(smooth.front().first == 0);
  CHECK(smooth.back().first == 599);
  for (std::size_t i = 50; i < 550; ++i) {
    const auto [step, value] = smooth[i];
    CAPTURE(step);
    CHECK(std::fabs(value - 3 - 0.01 * step) < 0.15);
  }
}

TEST_CASE("smoothing follows distance, not the number of points", "[curve]") {
  const auto smooth = smoothed({{0, 1}, {1, 1}, {1000, 5}});
  REQUIRE(smooth.size() == 3);
  CHECK(std::fabs(smooth[1].second - 1) < 1e-6);
  CHECK(std::fabs(smooth[2].second - 5) < 1e-6);
  CHECK(smoothed({{3, kNaN}}).empty());
}

TEST_CASE("the picture shows training, evaluation and their last values", "[curve]") {
  const auto svg =
      loss_curve_svg("a < b & \"c\"\n", {{1, 3}, {2, 2}, {3, kNaN}, {4, 1}}, {{2, 2.5}, {4, 1.5}});
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK_THAT(svg, Contains("a &lt; b &amp; \"c\"</text>"));
  CHECK_THAT(svg, Contains(">train 1."));
  CHECK_THAT(svg, Contains(">eval 1.5000<"));
  CHECK_THAT(svg, Contains("<title>step 2: 2.5000</title>"));
  CHECK_THAT(svg, !Contains("nan"));
}

TEST_CASE("the picture shows whatever data there is", "[curve]") {
  CHECK(loss_curve_svg("none", {}, {}).empty());
  CHECK(loss_curve_svg("none", {{1, kNaN}}, {}).empty());
  CHECK_THAT(loss_curve_svg("one", {{1, 2}}, {}), Contains(">train 2.0000<"));
  CHECK_THAT(loss_curve_svg("eval", {}, {{1, 2}, {2, 2}}), Contains(">eval 2.0000<"));
}

TEST_CASE("a long run's picture stays small and keeps its spikes", "[curve]") {
  Points points;
  for (int i = 0; i < 200000; ++i) points.emplace_back(i, 2 + 0.1 * (i % 7));
  points[123456].second = 40;
  const auto svg = loss_curve_svg("long", points, {});
  CHECK(svg.size() < 100'000);
  // The spike is far above the frame, whose range follows the smoothed curve.
  CHECK_THAT(svg, Contains(",-"));
}
