#include "runtime/train/start_times.hpp"

#include <algorithm>
#include <thread>

#include "tests/support/catch.hpp"

using namespace mgpu::train;

TEST_CASE("the parts of a start are in the order of their beginnings and end before its end",
          "[start]") {
  StartTimes times;
  const int loaded = times.measure("weights", [&] {
    std::thread([&] { times.measure("inner part", [] {}); }).join();
    return 7;
  });
  CHECK(loaded == 7);
  CHECK_FALSE(times.first_step_is_running());
  times.begin_first_step();
  CHECK(times.first_step_is_running());
  const auto report = times.end_first_step();
  CHECK_FALSE(times.first_step_is_running());

  std::vector<std::string> names;
  for (const auto& part : report.parts) {
    CHECK(part.begin <= part.end);
    CHECK(part.end <= report.seconds);
    names.push_back(part.name);
  }
  CHECK(names ==
        std::vector<std::string>{"libraries", "recipe", "weights", "inner part", "first step"});
  CHECK(report.parts.front().begin == 0);
}

TEST_CASE("a part that fails is recorded too", "[start]") {
  StartTimes times;
  CHECK_THROWS_AS(times.measure("data", [] { throw std::runtime_error("no such file"); }),
                  std::runtime_error);
  times.begin_first_step();
  const auto report = times.end_first_step();
  CHECK(std::ranges::count(report.parts, "data", &mgpu::telemetry::StartPart::name) == 1);
}
