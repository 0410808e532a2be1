#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"

namespace mgpu::rl {

// A completion with its log-probabilities, rewards and advantage.
struct ScoredCompletion {
  std::uint32_t prompt = 0;
  std::vector<std::int32_t> tokens;
  std::vector<float> sampler_log_probs;
  std::vector<float> old_log_probs;  // empty: the policy has not changed since it generated
  std::vector<float> ref_log_probs;  // empty: there is no reference model
  std::string text;
  bool terminated = false;  // it ended by itself and was not truncated
  std::vector<std::optional<double>> rewards;
  double advantage = 0;
};

// The completions of one generation, the same on every rank: completion i is number i % group of
// prompt i / group.
struct Generation {
  std::int64_t number = 0;  // counted from the start of training
  std::vector<ScoredCompletion> completions;
  std::map<std::string, double> metrics;
};

// Reads a generation as earlier versions stored it, in trainer_state.json.
Generation generation_from(const nlohmann::json& json);

// Gathers the completions of all ranks on every rank, in rank order.
std::vector<ScoredCompletion> gather_completions(const std::vector<ScoredCompletion>& own,
                                                 comm::Comm& comm, at::Device device);

// Puts gathered completions into the order of the prompts. Rank r had the prompts spread[r], with
// `group` completions each.
std::vector<ScoredCompletion> in_prompt_order(std::vector<ScoredCompletion> completions,
                                              const std::vector<std::vector<std::int64_t>>& spread,
                                              std::int64_t group);

}  // namespace mgpu::rl
