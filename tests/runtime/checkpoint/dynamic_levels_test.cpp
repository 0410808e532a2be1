#include "runtime/checkpoint/dynamic_levels.hpp"

#include <algorithm>
#include <functional>

#include "tests/support/catch.hpp"

using namespace mgpu::checkpoint;

TEST_CASE("there are 256 dynamic levels in ascending order, including 0 and 1", "[levels]") {
  for (const auto* levels : {&dynamic_levels(), &positive_dynamic_levels()}) {
    CHECK(std::adjacent_find(levels->begin(), levels->end(), std::greater_equal<>()) ==
          levels->end());
    CHECK(levels->back() == 1);
  }
  CHECK(dynamic_levels()[127] == 0);
  CHECK(dynamic_levels()[0] == -dynamic_levels()[254]);
  CHECK(positive_dynamic_levels()[0] == 0);
}

TEST_CASE("a decade has twice the levels of the one below it", "[levels]") {
  const auto between = [](const auto& levels, float low, float high) {
    return std::ranges::count_if(levels, [&](float x) { return x > low && x < high; });
  };
  int expected = 64;
  for (float high = 1; expected >= 1; high /= 10, expected /= 2) {
    CHECK(between(dynamic_levels(), high / 10, high) == expected);
    CHECK(between(positive_dynamic_levels(), high / 10, high) == 2 * expected);
  }
}
