#pragma once

#include <nlohmann/json.hpp>

#include "runtime/config/config.hpp"
#include "runtime/grpo/advantages.hpp"
#include "runtime/grpo/control.hpp"
#include "runtime/http/client.hpp"
#include "runtime/rewards/settings.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rollout/engine.hpp"

// What a recipe of task grpo says, as its parts want it. Every function throws std::runtime_error
// ("key: what is wrong").
namespace mgpu::rl {

// Without stop tokens and without a way to text.
rollout::Wanted wanted_of(const train::TrainConfig& config);

rewards::Settings reward_settings(const train::TrainConfig& config);
std::vector<std::string> reward_names(const train::TrainConfig& config);
// One a name.
std::vector<double> reward_weights(const train::TrainConfig& config);

PromptOptions prompt_options(const train::TrainConfig& config);

// Where the server is that generates, and what its requests have besides.
http::Address server_address(const train::TrainConfig& config);
nlohmann::json server_request(const train::TrainConfig& config);

grpo::AdaptiveKl adaptive_kl(const train::TrainConfig& config);
grpo::AdaptiveEntropy adaptive_entropy(const train::TrainConfig& config);

}  // namespace mgpu::rl
