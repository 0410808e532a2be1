#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// Where a frozen model is: sharded over all ranks, or whole on one GPU that a key names, where one
// rank computes with it.
struct Role {
  std::optional<std::int64_t> gpu;  // number of the GPU on its node; empty: all ranks
  int holder = 0;                   // the rank that computes with it, if it has its own GPU

  bool has_own_gpu() const { return gpu.has_value(); }
  friend bool operator==(const Role&, const Role&) = default;
};

// The GPUs of the roles of a GRPO job: rank i trains the policy on policy[i].
struct Roles {
  std::vector<std::int64_t> policy;
  Role reference, reward;
  bool named = false;  // a key names GPUs; else rank i has GPU i and all ranks share the roles
};

// Reads the keys policy_gpus, reference_gpu and reward_gpu. A role's GPU belongs to the rank that
// trains on it, else to rank 0. Throws RecipeError if policy_gpus names another number of ranks.
Roles plan_roles(const TrainConfig& config, std::int64_t ranks);

// The number of ranks that policy_gpus requires; empty: any number.
std::optional<std::int64_t> required_ranks(const TrainConfig& config);

// The number of GPUs that have a role.
std::int64_t count_gpus(const Roles& roles);

// Throws RecipeError if a node with `found` GPUs lacks the GPU of a role: "reference_gpu 2 needs 3
// GPUs, found 2; set reference_gpu: 1".
void check_gpus(const Roles& roles, std::int64_t found);

}  // namespace mgpu::train
