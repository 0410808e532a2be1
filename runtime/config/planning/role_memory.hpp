#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/config/planning/roles.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::train {

// Roles, as messages call them; a reward model is "reward" and its name.
inline constexpr const char* kPolicy = "the policy";
inline constexpr const char* kRollout = "the rollout";
inline constexpr const char* kReference = "the reference";

// What the roles of a GRPO job are counted for.
struct RoleRequest {
  model::ModelConfig model;
  TrainConfig config;  // max_length: of the longest prompt and a completion
  GenerationSizes sizes;
  Roles roles;
  struct Judge {
    std::string name;
    model::ModelConfig model;
  };
  std::vector<Judge> judges;   // rewards that are models
  std::int64_t gpu_bytes = 0;  // memory of one GPU; 0: unknown
};

// A role on one GPU: what it has all the time, and what it needs besides while it is at work. Roles
// work in turn.
struct RoleMemory {
  std::int64_t gpu = 0;
  std::string role;  // as messages call it: "the policy"
  std::string work;  // what it does then: "learning"
  std::int64_t holds = 0;
  std::int64_t at_work = 0;
  std::int64_t sequences = 0;  // of a rollout: how many are continued together

  friend bool operator==(const RoleMemory&, const RoleMemory&) = default;
};

// Every role on every GPU that has one, in their order. zero_stage and gradient_checkpointing are
// those of the configuration; auto counts as in estimate_memory.
std::vector<RoleMemory> role_memory(const RoleRequest& request);

// What all roles of a GPU hold, and the most that one of them needs besides.
std::int64_t peak_of(const std::vector<RoleMemory>& roles, std::int64_t gpu);
// The same with what lies outside of the allocator, or is lost to it.
std::int64_t needed(const std::vector<RoleMemory>& roles, std::int64_t gpu, std::int64_t ranks);
// What roles other than the policy hold there.
std::int64_t held_beside_policy(const std::vector<RoleMemory>& roles, std::int64_t gpu);

// How many completions an engine may continue together.
std::int64_t sequences_at_a_time(const std::vector<RoleMemory>& roles);

// A table of what each role holds and needs besides, with the sum of each GPU; GPUs alike together.
// `place` is what its first column is called.
std::string role_table(const std::vector<RoleMemory>& roles, const std::string& place = "GPU");

// Why it cannot be: the first GPU that lacks memory, the role that needs most there, and what to
// change. Nothing where all fits, or where no GPU's memory is known.
std::optional<std::string> lack_of_memory(const RoleRequest& request,
                                          const std::vector<RoleMemory>& roles);

}  // namespace mgpu::train
