#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/grpo_choices.hpp"

namespace mgpu::grpo {

// What reward functions said of all completions that are compared: those of all ranks, whole
// groups, in any order. Nothing here knows of ranks, so how completions were spread over them
// changes no bit of the answer.
struct Scores {
  std::vector<std::string> functions;  // names
  std::vector<double> weights;         // one a function; empty: 1 each
  // [completion][function]; nothing or NaN: the function does not apply to the completion.
  std::vector<std::vector<std::optional<double>>> rows;
  std::vector<std::int64_t> groups;  // of each completion: any number that its group shares
};

struct AdvantageOptions {
  train::ScaleRewards scale = train::ScaleRewards::group;
  train::RewardAggregation aggregation = train::RewardAggregation::sum_then_normalize;
};

AdvantageOptions advantage_options(const train::TrainConfig& config);

struct Advantages {
  std::vector<double> rewards;     // weighted sums; NaN where no function applied
  std::vector<double> advantages;  // 0 where no function applied, and where a group has no spread
  // reward, reward_std, rewards/<name>/mean and std, frac_reward_zero_std, over all completions.
  // What has no value (a function that scored none) is not there.
  std::map<std::string, double> metrics;
};

// A completion that no function scored is in no mean and no deviation (which is that of n - 1). A
// group's only scored completion has the advantage 0. Throws std::runtime_error for an infinite
// score and std::logic_error for rows, groups and weights that do not fit each other.
Advantages advantages(const Scores& scores, const AdvantageOptions& options);

}  // namespace mgpu::grpo
