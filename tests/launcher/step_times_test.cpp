#include "launcher/lifecycle/step_times.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;

namespace {

// Reports one interval of four ranks; returns the stragglers that this names.
std::vector<Straggler> interval(StepTimes& times, std::int64_t step, double slow_ms, int slow = 2) {
  std::vector<Straggler> named;
  for (int rank = 0; rank < 4; ++rank)
    if (const auto found = times.record(
            {.rank = rank, .step = step, .phase = {}, .busy_ms = rank == slow ? slow_ms : 100.0},
            step * 200ms))
      named.push_back(*found);
  return named;
}

}  // namespace

TEST_CASE("a rank that is slower for long is named once, with its cost", "[stragglers]") {
  StepTimes times;
  std::vector<Straggler> named;
  for (int step = 1; step <= 100; ++step)
    for (const auto& straggler : interval(times, step, 150)) named.push_back(straggler);
  REQUIRE(named.size() == 1);
  CHECK(named.front() == Straggler{2, 150, 100});
  CHECK(straggler_line(named.front(), "host7") ==
        "rank 2 on host7 is a straggler: its own work takes 150 ms per step, that of the other "
        "ranks 100 ms (1.50 times as long); the others wait up to 50 ms in every step");

  SECTION("again in the next attempt") {
    times.begin_attempt();
    for (int step = 1; step <= 100; ++step)
      for (const auto& straggler : interval(times, step, 150)) named.push_back(straggler);
    CHECK(named.size() == 2);
  }
}

TEST_CASE("a rank that is slow for a short time or by little is not named", "[stragglers]") {
  StepTimes times;
  for (int step = 1; step <= 200; ++step) {
    CHECK(interval(times, step, step % 20 < 5 ? 150 : 100).empty());
    CHECK(interval(times, step, 120, 1).empty());
  }
}

TEST_CASE("differences of less than a millisecond are noise", "[stragglers]") {
  StepTimes times;
  for (int step = 1; step <= 100; ++step)
    for (int rank = 0; rank < 2; ++rank)
      CHECK_FALSE(times.record(
          {.rank = rank, .step = step, .phase = {}, .busy_ms = rank == 0 ? 1.0 : 1.9}, 0ms));
}

TEST_CASE("the progress of every rank has its step, phase and skew", "[stragglers]") {
  StepTimes times;
  times.record({.rank = 5, .step = {}, .phase = "loading"}, 0ms);
  CHECK(times.progress() == std::vector<RankProgress>{{5, -1, "loading"}});
  for (int step = 1; step <= 10; ++step) interval(times, step, 150);
  times.forget(5);
  times.record({.rank = 0, .step = {}, .phase = "checkpoint"}, 0ms);
  const auto progress = times.progress();
  REQUIRE(progress.size() == 4);
  CHECK(progress[0] == RankProgress{0, 10, "checkpoint", 200.0, 100.0, 1.0});
  CHECK(progress[2] == RankProgress{2, 10, "training", 200.0, 150.0, 1.5});
}

TEST_CASE("one rank alone has no skew", "[stragglers]") {
  StepTimes times;
  for (int step = 1; step <= 50; ++step)
    CHECK_FALSE(times.record({.rank = 0, .step = step, .phase = {}, .busy_ms = 7.0}, 0ms));
  CHECK_FALSE(times.progress().front().skew);
}

TEST_CASE("the time of a step is that between reports, without other phases", "[stragglers]") {
  StepTimes times;
  times.record({.rank = 0, .step = 5}, 1000ms);
  CHECK_FALSE(times.progress().front().step_ms);
  times.record({.rank = 0, .step = 9}, 1400ms);
  CHECK(times.progress().front().step_ms == 100.0);
  times.record({.rank = 0, .step = {}, .phase = "checkpoint"}, 1400ms);
  times.record({.rank = 0, .step = 10}, 9000ms);
  CHECK(times.progress().front().step_ms == 100.0);
  times.record({.rank = 0, .step = 11}, 9200ms);
  CHECK(times.progress().front().step_ms == 120.0);  // smoothed
  times.record({.rank = 0, .step = 11}, 9900ms);
  CHECK(times.progress().front().step_ms == 120.0);
}

TEST_CASE("a program that counts its steps from a lower number again is measured on",
          "[stragglers]") {
  StepTimes times;
  times.record({.rank = 0, .step = 100}, 1000ms);
  times.record({.rank = 0, .step = 101}, 1100ms);
  times.record({.rank = 0, .step = 1}, 60000ms);
  CHECK(times.progress().front().step == 1);
  CHECK(times.progress().front().step_ms == 100.0);
  times.record({.rank = 0, .step = 3}, 60200ms);
  CHECK(times.progress().front().step == 3);
  CHECK(times.progress().front().step_ms == 100.0);
}

TEST_CASE("a rank that has been slower for long is marked until it is not", "[stragglers]") {
  StepTimes times;
  for (int step = 1; step <= 40; ++step) interval(times, step, 150);
  CHECK(times.progress()[2].straggler);
  CHECK_FALSE(times.progress()[1].straggler);
  for (int step = 41; step <= 80; ++step) interval(times, step, 100);
  CHECK_FALSE(times.progress()[2].straggler);
}
