#include "runtime/grpo/advantages.hpp"

#include <cmath>
#include <numeric>

#include "runtime/data/random.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::grpo;
using Catch::Matchers::Contains;
using train::RewardAggregation;
using train::ScaleRewards;

namespace {

using Row = std::vector<std::optional<double>>;

const double kNan = std::nan("");

Scores one_function(std::vector<std::optional<double>> scores, std::vector<std::int64_t> groups) {
  Scores all{.functions = {"accuracy"}, .weights = {}, .rows = {}, .groups = std::move(groups)};
  for (const auto& score : scores) all.rows.push_back({score});
  return all;
}

// Three functions, some of which do not apply, in groups of several sizes.
Scores mixed(std::uint64_t seed) {
  data::Random random({seed});
  Scores all{.functions = {"a", "b", "c"}, .weights = {1, .5, 2}, .rows = {}, .groups = {}};
  for (std::int64_t group = 0; group < 6; ++group)
    for (std::int64_t i = 0; i < 3 + group; ++i) {
      Row row;
      for (int f = 0; f < 3; ++f)
        row.push_back(random.below(5) == 0 ? std::nullopt
                                           : std::optional(double(random.below(1000)) / 333));
      all.rows.push_back(row);
      all.groups.push_back(group);
    }
  return all;
}

}  // namespace

TEST_CASE("an advantage is the distance from the group's mean in standard deviations",
          "[advantages]") {
  const auto got = advantages(one_function({1, 0, 0, 1, 3, 5}, {0, 0, 0, 0, 1, 1}), {});
  const double four = .5 / (std::sqrt(1.0 / 3) + 1e-4), two = 1 / (std::sqrt(2.0) + 1e-4);
  const std::vector<double> expected{four, -four, -four, four, -two, two};
  for (std::size_t i = 0; i < 6; ++i) CHECK(got.advantages[i] == Approx(expected[i]));
  CHECK(got.rewards == std::vector<double>{1, 0, 0, 1, 3, 5});
  CHECK(got.metrics.at("reward") == Approx(10.0 / 6));
  CHECK(got.metrics.at("rewards/accuracy/mean") == Approx(10.0 / 6));
  CHECK(got.metrics.at("frac_reward_zero_std") == 0);
}

TEST_CASE("scale_rewards selects the standard deviation to divide by", "[advantages]") {
  const auto scores = one_function({1, 0, 3, 5}, {0, 0, 1, 1});
  const auto none = advantages(scores, {.scale = ScaleRewards::none, .aggregation = {}});
  CHECK(none.advantages == std::vector<double>{.5, -.5, -1, 1});
  const auto batch = advantages(scores, {.scale = ScaleRewards::batch, .aggregation = {}});
  const double deviation = batch.metrics.at("reward_std") + 1e-4;
  CHECK(batch.advantages[0] == Approx(.5 / deviation));
  CHECK(batch.advantages[3] == Approx(1 / deviation));
}

TEST_CASE("the distribution of completions over ranks changes no bit", "[advantages]") {
  const auto scale = GENERATE(ScaleRewards::group, ScaleRewards::batch, ScaleRewards::none);
  const auto aggregation =
      GENERATE(RewardAggregation::sum_then_normalize, RewardAggregation::normalize_then_sum);
  const AdvantageOptions options{scale, aggregation};
  const auto scores = mixed(7);
  const auto all = advantages(scores, options);
  for (const std::size_t world : {2, 3, 4, 7}) {
    CAPTURE(world);
    // Completion i is on rank i % world, and completions are gathered rank by rank.
    Scores gathered = scores;
    gathered.rows.clear();
    gathered.groups.clear();
    std::vector<std::size_t> from;
    for (std::size_t rank = 0; rank < world; ++rank)
      for (std::size_t i = rank; i < scores.rows.size(); i += world) {
        gathered.rows.push_back(scores.rows[i]);
        gathered.groups.push_back(scores.groups[i]);
        from.push_back(i);
      }
    const auto got = advantages(gathered, options);
    for (std::size_t i = 0; i < from.size(); ++i)
      CHECK(got.advantages[i] == all.advantages[from[i]]);
    CHECK(got.metrics == all.metrics);
  }
}

TEST_CASE("equal rewards give zero advantages", "[advantages]") {
  const double reward = GENERATE(0.0, 1.0, .1);
  const auto scale = GENERATE(ScaleRewards::group, ScaleRewards::batch, ScaleRewards::none);
  const auto got = advantages(one_function({reward, reward, reward}, {4, 4, 4}), {.scale = scale});
  CHECK(got.advantages == std::vector<double>{0, 0, 0});
  CHECK(got.metrics.at("frac_reward_zero_std") == 1);
  CHECK(got.metrics.at("reward_std") == 0);
}

TEST_CASE("a completion that no function scored is excluded", "[advantages]") {
  const auto absent = GENERATE(Row{std::nullopt}, Row{std::nan("")});
  auto scores = one_function({1, 0, 2}, {0, 0, 0});
  const auto without = advantages(scores, {});
  scores.rows.push_back(absent);
  scores.groups.push_back(0);
  auto got = advantages(scores, {});
  for (std::size_t i = 0; i < 3; ++i) CHECK(got.advantages[i] == without.advantages[i]);
  CHECK(got.advantages[3] == 0);
  CHECK(std::isnan(got.rewards[3]));
  CHECK(got.metrics.at("frac_reward_missing") == .25);
  got.metrics.erase("frac_reward_missing");
  CHECK(got.metrics == without.metrics);
}

TEST_CASE("a group's only scored completion has advantage 0", "[advantages]") {
  const auto scale = GENERATE(ScaleRewards::group, ScaleRewards::batch, ScaleRewards::none);
  const auto got =
      advantages(one_function({1, std::nullopt, 0, 5}, {0, 0, 1, 1}), {.scale = scale});
  CHECK(got.advantages[0] == 0);
  CHECK(got.advantages[1] == 0);
  CHECK(got.advantages[3] > 0);
  // An unknown deviation does not count as zero.
  CHECK(got.metrics.at("frac_reward_zero_std") == 0);
}

TEST_CASE("without scores there are no advantages and no reward metrics", "[advantages]") {
  const auto got = advantages(one_function({std::nullopt, kNan}, {0, 0}), {});
  CHECK(got.advantages == std::vector<double>{0, 0});
  CHECK(got.metrics ==
        std::map<std::string, double>{{"frac_reward_zero_std", 0}, {"frac_reward_missing", 1}});
  CHECK(advantages(one_function({}, {}), {}).metrics.empty());
}

TEST_CASE("functions that do not apply are left out of the sum", "[advantages]") {
  Scores scores{.functions = {"a", "b"},
                .weights = {1, 10},
                .rows = {{1, 2}, {3, std::nullopt}, {std::nullopt, .5}, {0, 0}},
                .groups = {0, 0, 0, 0}};
  const auto got = advantages(scores, {});
  CHECK(got.rewards == std::vector<double>{21, 3, 5, 0});
  CHECK(got.metrics.at("rewards/a/mean") == Approx(4.0 / 3));
  CHECK(got.metrics.at("rewards/b/mean") == Approx(2.5 / 3));
}

TEST_CASE("functions can be normalized separately before they are summed", "[advantages]") {
  // The second function is a thousand times the first; normalized first, both have equal weight.
  Scores scores{.functions = {"a", "b"},
                .weights = {},
                .rows = {{1, 0}, {0, 1000}, {0, 0}, {1, 1000}},
                .groups = {0, 0, 0, 0}};
  const AdvantageOptions each{.scale = {}, .aggregation = RewardAggregation::normalize_then_sum};
  const auto got = advantages(scores, each);
  CHECK(got.advantages[0] == Approx(got.advantages[1]).margin(1e-3));
  CHECK(got.advantages[3] == Approx(-got.advantages[2]));
  CHECK(advantages(scores, {}).advantages[1] > .8);
}

TEST_CASE("an infinite score is reported with its function", "[advantages]") {
  CHECK_THROWS_WITH(advantages(one_function({0, HUGE_VAL}, {0, 0}), {}),
                    Contains("reward accuracy gave completion 1 an infinite score"));
  CHECK_THROWS_AS(advantages(one_function({0, 1}, {0}), {}), std::logic_error);
}
