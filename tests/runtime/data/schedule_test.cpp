#include <algorithm>
#include <map>
#include <vector>

#include "runtime/data/schedule.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;

namespace {

bool same(const Step& a, const Step& b) {
  return a.step == b.step && a.epoch == b.epoch && a.index == b.index &&
         a.items.examples == b.items.examples && a.items.starts == b.items.starts;
}

ScheduleOptions options_of(int kind) {
  ScheduleOptions options{.seed = 7, .global_batch = 12};
  if (kind == 1) options.packing = true, options.capacity = 512;
  if (kind == 2) options.group_by_length = true;
  if (kind == 3) options.shuffle = false;
  if (kind == 4) options.shuffle = false, options.packing = true, options.capacity = 600;
  if (kind == 5) options.packing = options.pack_in_order = true, options.capacity = 512;
  return options;
}

}  // namespace

TEST_CASE("the steps of an epoch contain every example once, and the last may be smaller",
          "[schedule]") {
  const auto lengths = some_lengths(1003, 512);
  const ScheduleOptions options = options_of(GENERATE(0, 1, 2, 3, 4, 5));
  Schedule schedule(lengths, all_of(1003), options);
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::uint32_t> seen;
    std::int64_t items = 0;
    for (std::int64_t index = 0; index < schedule.steps_in(epoch); ++index, ++step) {
      const Step s = schedule.at(step);
      CHECK(s.epoch == epoch);
      CHECK(s.index == index);
      const auto size = static_cast<std::int64_t>(s.items.size());
      CHECK((size == 12 || index + 1 == schedule.steps_in(epoch)));
      items += size;
      seen.insert(seen.end(), s.items.examples.begin(), s.items.examples.end());
    }
    CHECK(items == schedule.items_in(epoch));
    std::sort(seen.begin(), seen.end());
    CHECK(seen == all_of(1003)[0].examples);
  }
  CHECK(schedule.total_steps(3) == step);
}

TEST_CASE("steps can be requested in any order", "[schedule]") {
  const auto lengths = some_lengths(400, 512);
  const ScheduleOptions options = options_of(GENERATE(0, 1, 2, 3, 4, 5));
  Schedule straight(lengths, all_of(400), options);
  const std::int64_t total = straight.total_steps(3);
  for (std::int64_t step = total - 1; step >= 0; step -= 7) {
    Schedule resumed(lengths, all_of(400), options);
    CHECK(same(resumed.at(step), straight.at(step)));
    if (step > 0) CHECK(same(resumed.at(step - 1), straight.at(step - 1)));
  }
}

TEST_CASE("steps differ from epoch to epoch and from seed to seed", "[schedule]") {
  const auto lengths = some_lengths(500, 512);
  ScheduleOptions options = options_of(GENERATE(0, 1, 2, 5));
  Schedule schedule(lengths, all_of(500), options);
  const auto first = schedule.at(0).items.examples;
  CHECK(schedule.at(schedule.steps_in(0)).items.examples != first);
  options.seed = 8;
  CHECK(Schedule(lengths, all_of(500), options).at(0).items.examples != first);
}

TEST_CASE("a fraction of an epoch is rounded up to whole steps", "[schedule]") {
  const auto lengths = some_lengths(100, 512);
  Schedule schedule(lengths, all_of(100), {.global_batch = 8});
  CHECK(schedule.steps_in(0) == 13);
  CHECK(schedule.total_steps(0) == 0);
  CHECK(schedule.total_steps(0.5) == 7);
  CHECK(schedule.total_steps(1) == 13);
  CHECK(schedule.total_steps(2.1) == 28);
}

TEST_CASE("with group_by_length, lengths are similar within a step and steps are shuffled",
          "[schedule]") {
  const auto lengths = some_lengths(6400, 2048);
  Schedule schedule(lengths, all_of(6400), {.global_batch = 32, .group_by_length = true});
  Schedule plain(lengths, all_of(6400), {.global_batch = 32});
  const auto spread = [&](Schedule& s) {
    double sum = 0;
    for (std::int64_t step = 0; step < 200; ++step) {
      std::uint32_t low = 4096, high = 0;
      for (const std::uint32_t example : s.at(step).items.examples) {
        low = std::min(low, lengths[example]);
        high = std::max(high, lengths[example]);
      }
      sum += high - low;
    }
    return sum / 200;
  };
  CHECK(spread(schedule) < spread(plain) / 10);
  // Long and short steps are mixed: the first half of an epoch is not longer than the second.
  double halves[2] = {0, 0};
  for (std::int64_t step = 0; step < 200; ++step)
    for (const std::uint32_t example : schedule.at(step).items.examples)
      halves[step / 100] += lengths[example];
  CHECK(halves[0] / halves[1] < 1.3);
  CHECK(halves[1] / halves[0] < 1.3);
}

TEST_CASE("a schedule without examples is rejected", "[schedule]") {
  const std::vector<std::uint32_t> none;
  CHECK_THROWS(Schedule(none, {}, {.global_batch = 1}));
  CHECK_THROWS(Schedule(none, all_of(3), {.global_batch = 0}));
  CHECK_THROWS(Schedule(none, all_of(3), {.global_batch = 1, .packing = true}));
}

TEST_CASE("with packing in order and without shuffling, examples keep the order of the data",
          "[schedule]") {
  const auto lengths = some_lengths(200, 512);
  const ScheduleOptions options{
      .global_batch = 4, .shuffle = false, .packing = true, .pack_in_order = true, .capacity = 600};
  Schedule schedule(lengths, all_of(200), options);
  std::vector<std::uint32_t> seen;
  for (std::int64_t step = 0; step < schedule.steps_in(0); ++step) {
    const auto items = schedule.at(step).items;
    seen.insert(seen.end(), items.examples.begin(), items.examples.end());
  }
  CHECK(seen == all_of(200)[0].examples);
}
