#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/rewards/reward.hpp"
#include "runtime/rl/reward_model.hpp"

namespace mgpu::rl {

// The rewards of a recipe. Reward functions run on the rank that generates; reward models have a
// role.
struct RecipeRewards {
  std::vector<std::string> names;  // in the order of reward_funcs
  std::vector<double> weights;     // one per name
  std::vector<std::unique_ptr<rewards::Reward>> functions;
  std::vector<RewardModelSource> models;
  std::vector<std::string> notes;
};

// Opens the rewards of reward_funcs. Throws std::runtime_error, also as rewards::RewardError.
RecipeRewards open_rewards(const train::TrainConfig& config);

}  // namespace mgpu::rl
