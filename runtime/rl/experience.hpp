#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"

namespace mgpu::rl {

// A completion and all that is known of it.
struct Sample {
  std::uint32_t question = 0;
  std::vector<std::int32_t> tokens;
  std::vector<float> sampler_log_probs;
  std::vector<float> old_log_probs;  // empty: the policy has not changed since
  std::vector<float> ref_log_probs;  // empty: there is no reference
  std::string text;
  bool terminated = false;  // ended of its own, and was not cut
  std::vector<std::optional<double>> rewards;
  double advantage = 0;
};

// What was generated at a time, the same on every rank: completion i is number i % group of prompt
// i / group.
struct Generation {
  std::int64_t number = 0;  // since training began
  std::vector<Sample> samples;
  std::map<std::string, double> metrics;
};

nlohmann::json to_json(const Generation& generation);
Generation generation_from(const nlohmann::json& json);

// What each rank has, put end to end in the order of ranks, on every rank.
std::vector<Sample> share(const std::vector<Sample>& own, comm::Comm& comm, at::Device device);

// The same in the order of the prompts, of which rank r had those in spread[r]; `group` completions
// each.
std::vector<Sample> in_order(std::vector<Sample> samples,
                             const std::vector<std::vector<std::int64_t>>& spread,
                             std::int64_t group);

}  // namespace mgpu::rl
