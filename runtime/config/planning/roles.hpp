#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// Who computes with a model that does not learn: all ranks, over which its weights are spread, or
// one of them, which has it whole on a GPU that was named for it.
struct Role {
  std::optional<std::int64_t> gpu;  // by its number on the node; nothing: all ranks
  int holder = 0;                   // the rank that has it, if it has a GPU

  bool held() const { return gpu.has_value(); }
  friend bool operator==(const Role&, const Role&) = default;
};

// Which GPU each role of a GRPO job has: rank i learns on policy[i].
struct Roles {
  std::vector<std::int64_t> policy;
  Role reference, reward;
  bool named = false;  // a key names GPUs; else rank i has GPU i and the roles are everybody's
};

// The keys policy_gpus, reference_gpu and reward_gpu. A role's GPU belongs to the rank that learns
// on it, else to rank 0. Throws RecipeError when there are not as many ranks as policy_gpus.
Roles plan_roles(const TrainConfig& config, std::int64_t ranks);

// How many ranks policy_gpus asks for; nothing: any number.
std::optional<std::int64_t> ranks_of_roles(const TrainConfig& config);

// Throws RecipeError where a node with `found` GPUs lacks one that a role has: "reference_gpu 2
// needs 3 GPUs, found 2; set reference_gpu: 1".
void check_gpus(const Roles& roles, std::int64_t found);

}  // namespace mgpu::train
