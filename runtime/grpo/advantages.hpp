#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/grpo_choices.hpp"

namespace mgpu::grpo {

// The scores of all completions that are compared: those of all ranks, in complete groups, in any
// order. The result is bitwise the same for any distribution of completions over ranks.
struct Scores {
  std::vector<std::string> functions;  // names
  std::vector<double> weights;         // one per function; empty: 1 each
  // [completion][function]; no value or NaN: the function does not apply to the completion.
  std::vector<std::vector<std::optional<double>>> rows;
  std::vector<std::int64_t> groups;  // of each completion; equal numbers form a group
};

struct AdvantageOptions {
  train::ScaleRewards scale = train::ScaleRewards::group;
  train::RewardAggregation aggregation = train::RewardAggregation::sum_then_normalize;
};

AdvantageOptions advantage_options(const train::TrainConfig& config);

struct Advantages {
  std::vector<double> rewards;     // weighted sums; NaN if no function applied
  std::vector<double> advantages;  // 0 if no function applied or a group's rewards are all equal
  // reward, reward_std, rewards/<name>/mean and std, frac_reward_zero_std, over all completions;
  // frac_reward_missing if some have no score.
  // Metrics without a value (a function that scored none) are absent.
  std::map<std::string, double> metrics;
};

// A completion that no function scored is excluded from means and standard deviations (with n - 1).
// If a group has only one scored completion, its advantage is 0. Throws std::runtime_error for an
// infinite score and std::logic_error if rows, groups and weights have inconsistent sizes.
Advantages advantages(const Scores& scores, const AdvantageOptions& options);

}  // namespace mgpu::grpo
