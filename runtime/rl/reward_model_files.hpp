#pragma once

#include <cstddef>
#include <string>

#include "runtime/config/planning/role_memory.hpp"
#include "runtime/encoder/deberta_config.hpp"
#include "runtime/rewards/settings.hpp"

// What is known of a reward model from its files alone, without LibTorch.
namespace mgpu::rl {

// Tokens per forward pass of an encoder with padding, unless a single text is longer: attention
// takes more memory than in a decoder.
inline constexpr std::size_t kMaxPaddedTokens = 4096;

// Whether an entry of the list of rewards is a model, not the name of a reward function or rule: a
// folder with a config.json, or the name of a model in the Hub's cache.
bool is_reward_model(const std::string& entry, const rewards::Settings& settings);

// Its name in metrics: the last part of the path.
std::string reward_model_name(const std::string& entry);

// The text of its config.json. Throws std::runtime_error.
std::string reward_model_config(const std::string& folder);

// What the memory estimate needs of it; reads config.json only. Throws std::runtime_error.
train::RoleRequest::RewardModel reward_model_memory(const std::string& entry);

// The memory that an encoder needs on each GPU that computes it.
train::RoleRequest::RewardModel::Encoder encoder_memory(const encoder::DebertaConfig& config);

}  // namespace mgpu::rl
