#pragma once

#include "runtime/config/config.hpp"
#include "runtime/grpo/advantages.hpp"
#include "runtime/grpo/control.hpp"
#include "runtime/rewards/settings.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rollout/engine.hpp"

// What a recipe of task grpo says, as its parts want it. Every function throws std::runtime_error
// ("key: what is wrong").
namespace mgpu::rl {

// Without stop tokens and texts.
rollout::Wanted wanted_of(const train::TrainConfig& config);

rewards::Settings reward_settings(const train::TrainConfig& config);
std::vector<std::string> reward_names(const train::TrainConfig& config);
// One a name.
std::vector<double> reward_weights(const train::TrainConfig& config);

PromptOptions prompt_options(const train::TrainConfig& config);

grpo::AdaptiveKl adaptive_kl(const train::TrainConfig& config);
grpo::AdaptiveEntropy adaptive_entropy(const train::TrainConfig& config);

}  // namespace mgpu::rl
