// What the roles of a job take of its GPUs.
#include <algorithm>

#include "runtime/config/planning/planner.hpp"
#include "runtime/config/planning/role_memory.hpp"
#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/kernels/paged.hpp"
#include "runtime/rl/grpo_trainer.hpp"
#include "runtime/rl/recipe.hpp"

namespace mgpu::rl {

static_assert(train::CachePage{}.tokens == ops::kPageTokens);

train::RoleRequest GrpoTrainer::role_request() const {
  train::RoleRequest request{.model = source_->config,
                             .config = config_,
                             .sizes = sizes_,
                             .roles = roles_,
                             .reward_models = {},
                             .gpu_bytes = gpu_bytes_};
  if (!device_.is_cuda() && config_.dtype == train::Dtype::automatic)
    request.config.dtype = train::Dtype::fp32;
  for (const auto& source : reward_sources_)
    request.reward_models.push_back({source.name, source.model.config});
  return request;
}

// Before the learner is built: sequences are of this length, and others hold so much.
void GrpoTrainer::reserve_memory(std::int64_t longest_prompt) {
  config_.max_length = longest_prompt + wanted_of(config_).most_tokens;
  // All ranks settle the same.
  const auto roles = role_memory(role_request());
  for (const auto gpu : roles_.policy)
    reserved_bytes_ = std::max(reserved_bytes_, held_beside_policy(roles, gpu));
}

// After it: what is left to us is settled now.
void GrpoTrainer::account_for_roles() {
  const auto request = role_request();
  const auto roles = role_memory(request);
  notes_.push_back("memory by role\n" +
                   role_table(roles, roles_.named || device_.is_cuda() ? "GPU" : "rank"));
  sequences_ = sequences_at_a_time(roles);
  if (const auto lack = lack_of_memory(request, roles)) throw train::RecipeError({*lack});
  if (gpu_bytes_ > 0)
    planned_bytes_ = peak_of(roles, roles_.policy[static_cast<std::size_t>(contract_.rank)]);
}

}  // namespace mgpu::rl
