// The keys of step traces.

#include <string>
#include <vector>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;

TEST_CASE("steps to trace are numbers and ranges", "[resolve]") {
  struct Case {
    const char* line;
    std::vector<std::int64_t> expected;
  };
  const auto [line, expected] = GENERATE(values<Case>({
      {"trace_steps: 7\n", {7}},
      {"trace_steps: [10, 11]\n", {10, 11}},
      {"trace_steps: 10-12\n", {10, 11, 12}},
      {"trace_steps: \"10-12\"\n", {10, 11, 12}},
      {"trace_steps: [11-12, 3, 12]\n", {3, 11, 12}},
      {"trace_steps: 1-100\nmax_steps: 100\n", with("trace_steps: 1-100\n").trace_steps},
  }));
  CAPTURE(line);
  CHECK(with(line).trace_steps == expected);
}

TEST_CASE("steps that cannot be traced are errors", "[resolve]") {
  const std::string need =
      "f:3: trace_steps: need steps counted from 1, as numbers and ranges such as [5, 10-12], not ";
  CHECK(mistake("trace_steps: 0\n") == need + "0");
  CHECK(mistake("trace_steps: -3\n") == need + "-3");
  CHECK(mistake("trace_steps: 1.5\n") == need + "1.5");
  CHECK(mistake("trace_steps: 12-10\n") == need + "12-10");
  CHECK(mistake("trace_steps: []\n") == need + "a list");
  CHECK(mistake("trace_steps: [1, last]\n") == need + "a list");
  CHECK(mistake("trace_steps: 1-101\n") == "f:3: trace_steps: need at most 100 steps");
  CHECK(mistake("trace_steps: [1-60, 61-120]\n") == "f:3: trace_steps: need at most 100 steps");
  CHECK(mistake("trace_steps: 1-9000000000000000000\n") ==
        "f:3: trace_steps: need at most 100 steps");
  CHECK(mistake("trace_steps: [2, 11]\nmax_steps: 10\n") ==
        "f:3: trace_steps: step 11 is out of range: max_steps is 10");
  CHECK(noted(with("trace_dir: t\n"), "trace_dir: has no effect without trace_steps"));
}
