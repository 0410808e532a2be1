#include "runtime/rl/recipe_rewards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/rewards/catalog.hpp"
#include "runtime/rewards/external_reward.hpp"
#include "runtime/rl/recipe.hpp"

namespace mgpu::rl {

RecipeRewards open_rewards(const train::TrainConfig& config) {
  const auto settings = reward_settings(config);
  RecipeRewards opened;
  std::vector<std::string> functions;
  for (const auto& entry : reward_names(config)) {
    if (is_reward_model(entry, settings)) {
      opened.models.push_back(open_reward_model(entry, opened.names.size()));
      const auto& model = opened.models.back();
      opened.names.push_back(model.name);
      if (model.deberta)
        opened.notes.push_back(fmt::format(
            "reward {} reads a prompt and its completion as a pair of at most {} tokens; "
            "longer pairs are cut",
            model.name, model.deberta->longest));
    } else {
      functions.push_back(entry);
      opened.names.push_back(entry);
    }
  }
  auto names = opened.names;
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end());
      twice != names.end() && !opened.models.empty())
    throw rendezvous::InputError(fmt::format("reward_funcs names {} twice", *twice));
  opened.weights = reward_weights(config);
  if (!functions.empty()) opened.functions = rewards::make_rewards(functions, settings);
  if (settings.reward_sandbox && std::ranges::none_of(functions, rewards::runs_program))
    opened.notes.push_back(
        "reward_sandbox has no effect: no reward is a Python function or a program");
  if (train::GrpoValues(config).is_set("reward_gpu") && opened.models.empty())
    opened.notes.push_back(
        "reward_gpu has no effect: no reward is a model, and reward functions need no GPU");
  return opened;
}

}  // namespace mgpu::rl
