#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "runtime/data/order.hpp"
#include "runtime/data/random.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

std::map<std::uint32_t, int> counts(const std::vector<std::uint32_t>& values) {
  std::map<std::uint32_t, int> out;
  for (const std::uint32_t v : values) ++out[v];
  return out;
}

}  // namespace

TEST_CASE("random numbers are the same on every machine", "[random]") {
  Random random({42, 2, 0});
  const std::vector<std::uint64_t> first = {random.next(), random.next(), random.below(1000)};
  Random again({42, 2, 0}), other({42, 2, 1}), swapped({2, 42, 0});
  CHECK(again.next() == first[0]);
  CHECK(other.next() != first[0]);
  CHECK(swapped.next() != first[0]);
  // Fixed values: a checkpoint from another machine must resume with the same numbers.
  CHECK(first[0] == 5681476404939625046U);
  Random known({42, 1, 7});
  const std::vector<std::uint64_t> next = {known.next(), known.next(), known.next()};
  CHECK(next ==
        std::vector<std::uint64_t>{0xefb612b7ff20df94U, 0x82f8f88a3a085991U, 0x388f4a731ec96e28U});
}

TEST_CASE("every number below the limit is drawn about equally often", "[random]") {
  Random random({1});
  std::vector<int> seen(7);
  for (int i = 0; i < 70000; ++i) ++seen[random.below(7)];
  for (const int count : seen) CHECK(std::abs(count - 10000) < 500);
  CHECK(random.below(1) == 0);
}

TEST_CASE("a shuffle has every permutation about equally often", "[random]") {
  std::map<std::vector<std::uint32_t>, int> seen;
  for (std::uint64_t i = 0; i < 24000; ++i) {
    std::vector<std::uint32_t> values = {0, 1, 2, 3};
    Random random({7, i});
    shuffle(values, random);
    ++seen[values];
  }
  CHECK(seen.size() == 24);
  for (const auto& [order, count] : seen) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("an epoch contains every example once, in its own order", "[order]") {
  const auto selections = all_of(1000);
  const auto first = epoch_order(selections, 42, 0, true);
  const auto second = epoch_order(selections, 42, 1, true);
  CHECK(first != second);
  CHECK(first == epoch_order(selections, 42, 0, true));
  CHECK(first != epoch_order(selections, 43, 0, true));
  CHECK(counts(first) == counts(second));
  CHECK(counts(first).size() == 1000);
  CHECK(epoch_order(selections, 42, 5, false) == selections[0].examples);
}

TEST_CASE("the integer part of a weight repeats a source and the fraction adds a share of it",
          "[order]") {
  std::vector<Selection> selections = {{.examples = {0, 1, 2}, .weight = 2},
                                       {.examples = {3, 4, 5, 6}, .weight = 0.25},
                                       {.examples = {7, 8}, .weight = 1.5}};
  CHECK(epoch_size(selections) == 6 + 1 + 3);
  std::map<std::uint32_t, int> total;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    const auto order = epoch_order(selections, 1, epoch, true);
    CHECK(order.size() == 10);
    for (const auto& [example, count] : counts(order)) total[example] += count;
  }
  CHECK(total == std::map<std::uint32_t, int>{
                     {0, 8}, {1, 8}, {2, 8}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 6}, {8, 6}});
}

TEST_CASE("a split puts each example on one side", "[order]") {
  const std::vector<SourceRange> ranges = {{.first = 0, .count = 70, .weight = 2},
                                           {.first = 70, .count = 30, .weight = 1}};
  const auto [size, expected] =
      GENERATE(table<double, std::size_t>({{0, 0}, {0.1, 10}, {0.001, 1}, {0.29, 29}, {7, 7}}));
  const Split s = split(ranges, size, 42);
  CHECK(s.validation.size() == expected);
  REQUIRE(s.train.size() == 2);
  CHECK(s.train[0].weight == 2);
  std::vector<std::uint32_t> all = s.validation;
  for (const auto& selection : s.train)
    all.insert(all.end(), selection.examples.begin(), selection.examples.end());
  CHECK(counts(all).size() == 100);
  CHECK(all.size() == 100);
  for (const std::uint32_t i : s.train[0].examples) CHECK(i < 70);
  CHECK(split(ranges, size, 42).validation == s.validation);
  if (expected > 5) CHECK(split(ranges, size, 43).validation != s.validation);
}

TEST_CASE("a split that leaves nothing to train on is rejected", "[order]") {
  const std::vector<SourceRange> ranges = {{.first = 0, .count = 10}};
  CHECK_THROWS_WITH(split(ranges, 10, 1), Contains("leaves none to train on"));
  CHECK_THROWS_WITH(split(ranges, -0.5, 1), Contains("val_set_size"));
  CHECK_THROWS_WITH(split(ranges, 1.5, 1), Contains("val_set_size"));
  CHECK_THROWS_WITH(split(ranges, std::nan(""), 1), Contains("val_set_size"));
}

TEST_CASE("a share of all examples is left out, chosen by the seed", "[order]") {
  const auto left = [](std::uint64_t seed) {
    std::vector<Selection> selections{{.examples = {0, 1, 2, 3, 4, 5}}, {.examples = {6, 7, 8}}};
    leave_out(selections, .25, seed);
    auto all = selections[0].examples;
    all.insert(all.end(), selections[1].examples.begin(), selections[1].examples.end());
    return all;
  };
  const auto once = left(1);
  CHECK(once.size() == 7);
  CHECK(std::is_sorted(once.begin(), once.end()));
  CHECK(left(1) == once);
  CHECK(left(2) != once);
}

TEST_CASE("examples that are left out are in neither part of a split", "[order]") {
  const std::vector<SourceRange> ranges{{.first = 0, .count = 5}, {.first = 5, .count = 5}};
  const std::vector<std::uint32_t> left_out{1, 5, 9};
  const Split whole = split(ranges, 0, 42, left_out);
  CHECK(whole.all() == std::vector<std::uint32_t>{0, 2, 3, 4, 6, 7, 8});
  CHECK(whole.train.at(1).examples == std::vector<std::uint32_t>{6, 7, 8});
  const Split parts = split(ranges, 3, 42, left_out);
  CHECK(parts.validation.size() == 3);
  CHECK(parts.all().size() == 4);
  for (const auto example : left_out)
    CHECK(std::count(parts.validation.begin(), parts.validation.end(), example) == 0);
  CHECK_THROWS_WITH(split(ranges, 7, 42, left_out), Contains("leaves none to train on"));
}
