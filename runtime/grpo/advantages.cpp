#include "runtime/grpo/advantages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/config/grpo_values.hpp"

namespace mgpu::grpo {
namespace {

using train::RewardAggregation;
using train::ScaleRewards;
using Column = std::vector<double>;  // one number per completion; NaN: none

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kDeviationOffset = 1e-4;  // added, so that nearly equal rewards are not scaled up
constexpr double kZeroDeviation = 1e-8;

struct Spread {
  double mean = kNone;
  double deviation = kNone;
};

// Mean and deviation of the values that are not NaN. They are added in ascending order, so that the
// order of completions does not matter.
Spread spread_of(Column values) {
  const auto rows = values.size();
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  Spread spread{.mean = sum / count};
  if (values.front() == values.back()) spread.mean = values.front();  // no deviation from rounding
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (values.size() > 1) spread.deviation = std::sqrt(squares / (count - 1));
  // A group of one by design, not because the others have no score.
  if (rows == 1) spread.deviation = 0;
  return spread;
}

// Mean and deviation of each completion's group.
std::vector<Spread> group_spreads(const Column& values, const std::vector<std::int64_t>& groups) {
  std::map<std::int64_t, Column> members;
  for (std::size_t i = 0; i < values.size(); ++i) members[groups[i]].push_back(values[i]);
  std::map<std::int64_t, Spread> of;
  for (auto& [group, column] : members) of[group] = spread_of(std::move(column));
  std::vector<Spread> spreads;
  for (const auto group : groups) spreads.push_back(of[group]);
  return spreads;
}

Column column_of(const Scores& scores, std::size_t function) {
  Column column;
  for (const auto& row : scores.rows) column.push_back(row[function].value_or(kNone));
  return column;
}

void check(const Scores& scores) {
  const auto functions = scores.functions.size();
  if (scores.groups.size() != scores.rows.size() ||
      (!scores.weights.empty() && scores.weights.size() != functions))
    throw std::logic_error("advantages: need one group per completion and one weight per function");
  for (std::size_t i = 0; i < scores.rows.size(); ++i) {
    if (scores.rows[i].size() != functions)
      throw std::logic_error("advantages: need one score of every function per completion");
    for (std::size_t f = 0; f < functions; ++f)
      if (scores.rows[i][f] && std::isinf(*scores.rows[i][f]))
        throw std::runtime_error(
            fmt::format("reward {} gave completion {} an infinite score; a reward that does not "
                        "apply must return "
                        "no score",
                        scores.functions[f], i));
  }
}

double weight_of(const Scores& scores, std::size_t function) {
  return scores.weights.empty() ? 1 : scores.weights[function];
}

// The weighted sum of the columns that have a number; NaN if no function has one.
Column weighted_sum(const Scores& scores, const std::vector<Column>& columns) {
  Column sums(scores.rows.size(), kNone);
  for (std::size_t i = 0; i < sums.size(); ++i)
    for (std::size_t f = 0; f < columns.size(); ++f) {
      if (!scores.rows[i][f] || std::isnan(*scores.rows[i][f])) continue;
      if (std::isnan(sums[i])) sums[i] = 0;
      if (!std::isnan(columns[f][i])) sums[i] += weight_of(scores, f) * columns[f][i];
    }
  return sums;
}

// The distance from the mean in standard deviations; 0 if undefined.
double scaled(double distance, double deviation) {
  const double value = distance / (deviation + kDeviationOffset);
  return std::isnan(value) ? 0 : value;
}

// sum_then_normalize: sets the advantages from the summed rewards. Returns the deviation that
// applies to each completion.
Column normalize_sums(const Scores& scores, const AdvantageOptions& options, Advantages& out) {
  const auto of_group = group_spreads(out.rewards, scores.groups);
  const auto of_all = spread_of(out.rewards);
  Column deviations;
  for (std::size_t i = 0; i < out.rewards.size(); ++i) {
    const bool batch = options.scale == ScaleRewards::batch;
    deviations.push_back(batch ? of_all.deviation : of_group[i].deviation);
    const double distance = out.rewards[i] - of_group[i].mean;
    if (options.scale == ScaleRewards::none)
      out.advantages.push_back(std::isnan(distance) ? 0 : distance);
    else
      out.advantages.push_back(scaled(distance, deviations.back()));
  }
  return deviations;
}

// normalize_then_sum: normalizes each function within its group, then sums.
Column normalize_functions(const Scores& scores, const std::vector<Column>& columns,
                           Advantages& out) {
  std::vector<Column> normal = columns;
  for (auto& column : normal) {
    const auto spreads = group_spreads(column, scores.groups);
    for (std::size_t i = 0; i < column.size(); ++i)
      column[i] = (column[i] - spreads[i].mean) / (spreads[i].deviation + kDeviationOffset);
  }
  const auto sums = weighted_sum(scores, normal);
  const auto of_all = spread_of(sums);
  for (const double sum : sums)
    out.advantages.push_back(scaled(sum - of_all.mean, of_all.deviation));
  return Column(sums.size(), of_all.deviation);
}

}  // namespace

AdvantageOptions advantage_options(const train::TrainConfig& config) {
  const train::GrpoValues values(config);
  return {values.choice("scale_rewards", train::reward_scales()),
          values.choice("multi_objective_aggregation", train::reward_aggregations())};
}

Advantages advantages(const Scores& scores, const AdvantageOptions& options) {
  check(scores);
  std::vector<Column> columns;
  for (std::size_t f = 0; f < scores.functions.size(); ++f) columns.push_back(column_of(scores, f));
  Advantages out;
  out.rewards = weighted_sum(scores, columns);
  const bool sum_first = options.aggregation == RewardAggregation::sum_then_normalize;
  const auto deviations =
      sum_first ? normalize_sums(scores, options, out) : normalize_functions(scores, columns, out);

  const auto put = [&](const std::string& name, double value) {
    if (!std::isnan(value)) out.metrics[name] = value;
  };
  for (std::size_t f = 0; f < columns.size(); ++f) {
    const auto spread = spread_of(columns[f]);
    put(fmt::format("rewards/{}/mean", scores.functions[f]), spread.mean);
    put(fmt::format("rewards/{}/std", scores.functions[f]), spread.deviation);
  }
  const auto spread = spread_of(out.rewards);
  put("reward", spread.mean);
  put("reward_std", spread.deviation);
  const auto zero = std::count_if(deviations.begin(), deviations.end(),
                                  [](double d) { return d <= kZeroDeviation; });
  if (!deviations.empty())
    put("frac_reward_zero_std", static_cast<double>(zero) / static_cast<double>(deviations.size()));
  const auto missing = std::ranges::count_if(out.rewards, [](double r) { return std::isnan(r); });
  if (missing > 0)
    put("frac_reward_missing",
        static_cast<double>(missing) / static_cast<double>(out.rewards.size()));
  return out;
}

}  // namespace mgpu::grpo
