#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/data/packing.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;

namespace {

std::vector<std::uint32_t> straight(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

std::uint64_t tokens(std::span<const std::uint32_t> item, const std::vector<std::uint32_t>& l) {
  std::uint64_t sum = 0;
  for (const std::uint32_t example : item) sum += l[example];
  return sum;
}

// A plain implementation of best-fit decreasing that looks at every bin.
std::vector<std::vector<std::uint32_t>> plain_best_fit(std::vector<std::uint32_t> order,
                                                       const std::vector<std::uint32_t>& lengths,
                                                       std::uint64_t capacity) {
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<std::uint32_t>> bins;
  for (const std::uint32_t example : order) {
    std::vector<std::uint32_t>* best = nullptr;
    for (auto& bin : bins) {
      if (tokens(bin, lengths) + lengths[example] > capacity) continue;
      if (!best || tokens(bin, lengths) > tokens(*best, lengths)) best = &bin;
    }
    if (!best) best = &bins.emplace_back();
    best->push_back(example);
  }
  return bins;
}

}  // namespace

TEST_CASE("packing does not lose, split or repeat examples", "[packing]") {
  const std::uint32_t capacity = GENERATE(64U, 65U, 1000U, 4096U);
  const std::size_t window = GENERATE(as<std::size_t>(), 1, 100, 5000);
  CAPTURE(capacity, window);
  const auto lengths = some_lengths(3000, capacity, capacity);
  const Items items = pack(straight(3000), lengths, capacity, window);
  std::vector<std::uint32_t> seen = items.examples;
  std::sort(seen.begin(), seen.end());
  CHECK(seen == straight(3000));
  for (std::size_t i = 0; i < items.size(); ++i) {
    REQUIRE(!items[i].empty());
    REQUIRE(tokens(items[i], lengths) <= capacity);
  }
}

TEST_CASE("packing fills bins like best-fit decreasing", "[packing]") {
  const unsigned seed = GENERATE(range(1U, 20U));
  const auto lengths = some_lengths(200, 300, seed);
  const Items items = pack(straight(200), lengths, 300);
  const auto plain = plain_best_fit(straight(200), lengths, 300);
  REQUIRE(items.size() == plain.size());
  // Best fit may choose any of several bins with the same free space, so compare how full they are.
  std::vector<std::uint64_t> ours, theirs;
  for (std::size_t i = 0; i < items.size(); ++i) ours.push_back(tokens(items[i], lengths));
  for (const auto& bin : plain) theirs.push_back(tokens(bin, lengths));
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  CHECK(ours == theirs);
}

TEST_CASE("packing leaves almost no free space", "[packing]") {
  const auto lengths = some_lengths(20000, 2048);
  const Items items = pack(straight(20000), lengths, 2048);
  const double used = static_cast<double>(tokens(straight(20000), lengths)) /
                      (2048.0 * static_cast<double>(items.size()));
  CHECK(used > 0.99);
}

TEST_CASE("an example longer than a bin is a caller's error", "[packing]") {
  const std::vector<std::uint32_t> lengths = {65};
  CHECK_THROWS_AS(pack(straight(1), lengths, 64), std::logic_error);
}

TEST_CASE("rows are packed in their order if the order matters", "[packing]") {
  const std::vector<std::uint32_t> lengths{5, 3, 4, 10, 1, 1};
  const auto bins = pack_in_order(straight(6), lengths, 10);
  REQUIRE(bins.size() == 4);
  const auto of = [&](std::size_t i) {
    return std::vector<std::uint32_t>(bins[i].begin(), bins[i].end());
  };
  CHECK(of(0) == std::vector<std::uint32_t>{0, 1});
  CHECK(of(1) == std::vector<std::uint32_t>{2});
  CHECK(of(2) == std::vector<std::uint32_t>{3});
  CHECK(of(3) == std::vector<std::uint32_t>{4, 5});
  CHECK(pack_in_order({}, lengths, 10).size() == 0);
  CHECK_THROWS(pack_in_order(straight(6), lengths, 9));
}
