// GPU memory of a job's roles.
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

// Called before the learner is built. Sets the sequence length and reserves the memory of the other
// roles.
void GrpoTrainer::reserve_memory(std::int64_t longest_prompt) {
  config_.max_length = longest_prompt + generation_settings(config_).max_tokens;
  // All ranks reserve the same amount.
  const auto roles = role_memory(role_request());
  for (const auto gpu : roles_.policy)
    reserved_bytes_ = std::max(reserved_bytes_, held_by_other_roles(roles, gpu));
}

// Called after the learner is built, when the free memory is known.
void GrpoTrainer::account_for_roles() {
  const auto request = role_request();
  const auto roles = role_memory(request);
  notes_.push_back("memory by role\n" +
                   role_table(roles, roles_.named || device_.is_cuda() ? "GPU" : "rank"));
  sequences_ = concurrent_sequences(roles);
  if (const auto lack = memory_error(request, roles)) throw train::RecipeError({*lack});
  if (gpu_bytes_ > 0)
    planned_bytes_ = peak_bytes(roles, roles_.policy[static_cast<std::size_t>(contract_.rank)]);
}

}  // namespace mgpu::rl
