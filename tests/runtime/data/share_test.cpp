#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/data/share.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

std::vector<double> some_costs(std::size_t count, unsigned seed = 1) {
  const auto lengths = some_lengths(count, 2048, seed);
  return {lengths.begin(), lengths.end()};
}

std::vector<double> loads(const Shares& shares, const std::vector<double>& costs) {
  std::vector<double> out;
  for (const auto& rank : shares) {
    out.push_back(0);
    for (const auto& micro_batch : rank)
      for (const auto item : micro_batch) out.back() += costs[item];
  }
  return out;
}

}  // namespace

TEST_CASE("every item of a step is assigned once, within the size of a micro-batch", "[share]") {
  const int world = GENERATE(1, 2, 3, 4, 5, 8);
  const auto [items, max_items, micro_batches] =
      GENERATE(table<std::size_t, std::int64_t, std::int64_t>(
          {{64, 4, 0}, {7, 4, 4}, {1, 1, 0}, {0, 2, 2}}));
  const bool weighted = GENERATE(false, true);
  CAPTURE(world, items, max_items, weighted);
  ShareOptions options{.world = world, .max_items = max_items, .min_micro_batches = micro_batches};
  if (weighted)
    for (int r = 0; r < world; ++r) options.weights.push_back(r == 1 ? 0 : 1 + r);
  const Shares shares = share(some_costs(items), options);

  REQUIRE(shares.size() == static_cast<std::size_t>(world));
  std::vector<std::uint32_t> seen;
  for (const auto& rank : shares) {
    CHECK(rank.size() == shares[0].size());
    CHECK(rank.size() >= static_cast<std::size_t>(std::max<std::int64_t>(1, micro_batches)));
    for (const auto& micro_batch : rank) {
      CHECK(micro_batch.size() <= static_cast<std::size_t>(max_items));
      seen.insert(seen.end(), micro_batch.begin(), micro_batch.end());
    }
  }
  if (weighted && world > 1)
    for (const auto& micro_batch : shares[1]) CHECK(micro_batch.empty());
  std::sort(seen.begin(), seen.end());
  std::vector<std::uint32_t> all(items);
  std::iota(all.begin(), all.end(), 0U);
  CHECK(seen == all);
}

TEST_CASE("a full step takes exactly the configured number of micro-batches", "[share]") {
  // 2 ranks x 4 micro-batches x 3 items
  const Shares shares = share(some_costs(24), {.world = 2, .max_items = 3});
  for (const auto& rank : shares) {
    CHECK(rank.size() == 4);
    for (const auto& micro_batch : rank) CHECK(micro_batch.size() == 3);
  }
}

TEST_CASE("ranks get about the same cost", "[share]") {
  const int world = GENERATE(2, 4, 8);
  double worst = 0, sum = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const auto costs = some_costs(static_cast<std::size_t>(world) * 16, seed);
    const auto each = loads(share(costs, {.world = world, .max_items = 4}), costs);
    const double mean = std::accumulate(each.begin(), each.end(), 0.0) / world;
    const double over = *std::max_element(each.begin(), each.end()) / mean - 1;
    worst = std::max(worst, over);
    sum += over;
  }
  CAPTURE(world, worst, sum);
  CHECK(sum / 100 < 0.01);
}

TEST_CASE("a rank that is twice as fast gets twice the cost", "[share]") {
  const auto costs = some_costs(120);
  const auto each = loads(share(costs, {.world = 3, .max_items = 8, .weights = {2, 1, 1}}), costs);
  CHECK(std::abs(each[0] / each[1] - 2) < 0.1);
  CHECK(std::abs(each[1] / each[2] - 1) < 0.05);
}

TEST_CASE("there must be one weight per rank", "[share]") {
  const auto bad = GENERATE(values<std::vector<double>>({{1}, {1, -1}, {0, 0}, {1, NAN}}));
  CHECK_THROWS_WITH(share(some_costs(4), {.world = 2, .weights = bad}),
                    Contains("invalid for 2 ranks"));
}

TEST_CASE("cost grows with tokens and with the square of each length", "[share]") {
  const std::vector<std::uint32_t> lengths = {10, 20};
  const std::vector<std::uint32_t> both = {0, 1};
  CHECK(cost_of(both, lengths, 0) == 30);
  CHECK(cost_of(both, lengths, 0.5) == 30 + 0.5 * (100 + 400));
}
