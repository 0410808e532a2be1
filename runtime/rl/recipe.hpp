#pragma once

#include <nlohmann/json.hpp>

#include "runtime/config/config.hpp"
#include "runtime/grpo/advantages.hpp"
#include "runtime/grpo/loss_control.hpp"
#include "runtime/http/client.hpp"
#include "runtime/rewards/settings.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rollout/generation_settings.hpp"

// Reads the keys of a recipe with task grpo into the settings of each component. Every function
// throws std::runtime_error ("key: reason").
namespace mgpu::rl {

// Without stop_tokens and text_of, which need the tokenizer.
rollout::GenerationSettings generation_settings(const train::TrainConfig& config);

rewards::Settings reward_settings(const train::TrainConfig& config);
// reward_funcs, and reward_model as the last. Throws if there is none, or if the model is missing.
std::vector<std::string> reward_names(const train::TrainConfig& config);
// One weight per reward name.
std::vector<double> reward_weights(const train::TrainConfig& config);

PromptOptions prompt_options(const train::TrainConfig& config);

// The address of the server that generates, and additional fields of its requests.
http::Address server_address(const train::TrainConfig& config);
nlohmann::json server_request(const train::TrainConfig& config);

grpo::LossControl loss_control(const train::TrainConfig& config);

}  // namespace mgpu::rl
