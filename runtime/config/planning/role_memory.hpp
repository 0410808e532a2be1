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

// Names of roles in messages; a reward model is "reward" and its name.
inline constexpr const char* kPolicy = "the policy";
inline constexpr const char* kRollout = "the rollout";
inline constexpr const char* kReference = "the reference";

// The input of the memory estimate of a GRPO job.
struct RoleRequest {
  model::ModelConfig model;
  TrainConfig config;  // max_length: the longest prompt plus a completion
  GenerationSizes sizes;
  Roles roles;
  struct RewardModel {
    // Of an encoder: each GPU that computes it has all of its weights.
    struct Encoder {
      std::int64_t weights = 0, forward = 0;  // bytes
    };
    std::string name;
    model::ModelConfig model;
    std::optional<Encoder> encoder;  // if set, `model` is not used
  };
  std::vector<RewardModel> reward_models;
  std::int64_t gpu_bytes = 0;  // memory of one GPU; 0: unknown
};

// The memory of a role on one GPU: what it always holds, and what it needs in addition while it is
// active. Only one role is active at a time.
struct RoleMemory {
  std::int64_t gpu = 0;
  std::string role;  // name in messages: "the policy"
  std::string work;  // its activity: "training"
  std::int64_t holds = 0;
  std::int64_t at_work = 0;
  // Of a rollout: completions generated concurrently, and pages of the KV cache.
  std::int64_t sequences = 0, pages = 0;

  friend bool operator==(const RoleMemory&, const RoleMemory&) = default;
};

// The memory of every role on every GPU, ordered by GPU. zero_stage and gradient_checkpointing are
// those of the configuration; auto is handled as in estimate_memory.
std::vector<RoleMemory> role_memory(const RoleRequest& request);

// The sum of what all roles of a GPU hold, plus the largest additional need of one role.
std::int64_t peak_bytes(const std::vector<RoleMemory>& roles, std::int64_t gpu);
// The same including memory outside the allocator and a margin for fragmentation.
std::int64_t needed(const std::vector<RoleMemory>& roles, std::int64_t gpu, std::int64_t ranks);
// The sum of what the roles other than the policy hold on a GPU.
std::int64_t held_by_other_roles(const std::vector<RoleMemory>& roles, std::int64_t gpu);

// How many completions an engine may generate concurrently, and with how many pages.
std::int64_t concurrent_sequences(const std::vector<RoleMemory>& roles);
std::int64_t cache_pages(const std::vector<RoleMemory>& roles);

// A table of what each role holds and needs in addition, with the total of each GPU. Equal GPUs
// share their rows. `place` is the heading of the first column.
std::string role_table(const std::vector<RoleMemory>& roles, const std::string& place = "GPU");

// An error message if the job does not fit: the first GPU with too little memory, the role that
// needs most there, and what to change. Empty if everything fits or the GPU's memory is unknown.
std::optional<std::string> memory_error(const RoleRequest& request,
                                        const std::vector<RoleMemory>& roles);

}  // namespace mgpu::train
