#include "runtime/profiling/range_log.hpp"

#include <chrono>
#include <optional>
#include <thread>

#include "runtime/profiling/gpu_activity.hpp"
#include "runtime/profiling/range.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::profiling;

namespace {

std::vector<std::string> names(const std::vector<Span>& spans) {
  std::vector<std::string> all;
  for (const auto& span : spans) all.push_back(span.name);
  return all;
}

}  // namespace

TEST_CASE("the log has the ranges that lie in it and no others", "[range_log]") {
  {
    const Range before("before");
  }
  std::optional<Range> across(std::in_place, "ends in it");
  start_range_log();
  across.reset();
  {
    const Range outer("outer");
    const Range inner("inner");
  }
  across.emplace("ends after it");
  const auto spans = stop_range_log();
  across.reset();
  {
    const Range after("after");
  }
  CHECK(names(spans) == std::vector<std::string>{"inner", "outer"});  // in the order of their ends
  REQUIRE(spans.size() == 2);
  CHECK(spans[1].begin_ns <= spans[0].begin_ns);
  CHECK(spans[0].end_ns <= spans[1].end_ns);

  SECTION("a range that began in an earlier log is not in the next one") {
    start_range_log();
    across.emplace("of the first");
    stop_range_log();
    start_range_log();
    across.reset();
    CHECK(stop_range_log().empty());
  }
}

TEST_CASE("times in the log are nanoseconds since 1970", "[range_log]") {
  const auto now = [] {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const auto begin = now();
  start_range_log();
  {
    const Range range("a");
  }
  const auto spans = stop_range_log();
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].begin_ns >= begin - 1'000'000);
  CHECK(spans[0].end_ns <= now() + 1'000'000);
}

TEST_CASE("a range is of the step that had begun", "[range_log]") {
  start_range_log();
  {
    const Range range("a");
  }
  begin_step_in_range_log(7);
  {
    const Range range("b");
  }
  begin_step_in_range_log(8);
  {
    const Range range("c");
  }
  std::vector<std::int64_t> steps;
  for (const auto& span : stop_range_log()) steps.push_back(span.step);
  CHECK(steps == std::vector<std::int64_t>{0, 7, 8});
}

TEST_CASE("ranges of several threads are in one log", "[range_log]") {
  start_range_log();
  {
    const Range range("here");
  }
  std::thread([] { const Range range("there"); }).join();
  const auto spans = stop_range_log();
  REQUIRE(names(spans) == std::vector<std::string>{"here", "there"});
  CHECK(spans[0].thread != spans[1].thread);
}

TEST_CASE("without a GPU there is no GPU activity", "[gpu_activity]") {
  GpuActivity first;
  for (const auto& span : first.stop()) CHECK(span.gpu >= 0);
  GpuActivity second;  // a trace may have several parts
  for (const auto& span : second.stop()) CHECK(span.gpu >= 0);
  const GpuActivity never_stopped;
}
