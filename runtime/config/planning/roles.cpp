#include "runtime/config/planning/roles.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/resolve.hpp"

namespace mgpu::train {
namespace {

std::vector<std::int64_t> policy_gpus(const GrpoValues& values) {
  if (!values.is_set("policy_gpus")) return {};
  const auto node = values.node("policy_gpus");
  return is_null(node) ? std::vector<std::int64_t>() : to_gpus(node);
}

Role role_of(std::optional<std::int64_t> gpu, const std::vector<std::int64_t>& policy) {
  if (!gpu) return {};
  const auto found = std::find(policy.begin(), policy.end(), *gpu);
  return {gpu, found == policy.end() ? 0 : static_cast<int>(found - policy.begin())};
}

}  // namespace

std::optional<std::int64_t> required_ranks(const TrainConfig& config) {
  if (config.task != Task::grpo) return {};
  const auto gpus = policy_gpus(GrpoValues(config));
  if (gpus.empty()) return {};
  return static_cast<std::int64_t>(gpus.size());
}

Roles plan_roles(const TrainConfig& config, std::int64_t ranks) {
  const GrpoValues values(config);
  Roles roles;
  roles.policy = policy_gpus(values);
  const auto reference = values.whole("reference_gpu"), reward = values.whole("reward_gpu");
  roles.named = !roles.policy.empty() || reference || reward;
  if (const auto named = static_cast<std::int64_t>(roles.policy.size());
      named > 0 && named != ranks)
    throw_recipe_error(fmt::format(
        "policy_gpus names {} GPU{}, but the job has {} rank{}; start it with --nproc {}", named,
        named == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s", named));
  if (roles.policy.empty()) {
    roles.policy.resize(static_cast<std::size_t>(ranks));
    std::iota(roles.policy.begin(), roles.policy.end(), std::int64_t{0});
  }
  roles.reference = role_of(reference, roles.policy);
  roles.reward = role_of(reward, roles.policy);
  return roles;
}

std::int64_t count_gpus(const Roles& roles) {
  std::set<std::int64_t> gpus(roles.policy.begin(), roles.policy.end());
  for (const auto* role : {&roles.reference, &roles.reward})
    if (role->gpu) gpus.insert(*role->gpu);
  return static_cast<std::int64_t>(gpus.size());
}

void check_gpus(const Roles& roles, std::int64_t found) {
  if (!roles.named) return;
  std::vector<std::string> lacking, remedies;
  std::int64_t needed = 0;
  const auto require = [&](const std::string& key, std::int64_t highest,
                           const std::string& remedy) {
    if (highest < found) return;
    needed = std::max(needed, highest + 1);
    lacking.push_back(key);
    remedies.push_back(remedy);
  };
  const auto ranks = static_cast<std::int64_t>(roles.policy.size());
  const auto fitting = std::max<std::int64_t>(1, std::min(ranks, found));
  std::vector<std::int64_t> policy(static_cast<std::size_t>(fitting));
  std::iota(policy.begin(), policy.end(), std::int64_t{0});
  require(fmt::format("policy_gpus [{}]", fmt::join(roles.policy, ", ")),
          *std::max_element(roles.policy.begin(), roles.policy.end()),
          fmt::format("policy_gpus: [{}]{}", fmt::join(policy, ", "),
                      fitting < ranks ? fmt::format(" with --nproc {}", fitting) : ""));
  const auto last = std::max<std::int64_t>(0, found - 1);
  const auto require_role = [&](const char* key, const Role& role) {
    if (role.has_own_gpu())
      require(fmt::format("{} {}", key, *role.gpu), *role.gpu, fmt::format("{}: {}", key, last));
  };
  require_role("reference_gpu", roles.reference);
  require_role("reward_gpu", roles.reward);
  if (lacking.empty()) return;
  throw_recipe_error(
      fmt::format("{} {} {} GPUs, found {}; set {}", fmt::join(lacking, " and "),
                  lacking.size() == 1 && !lacking[0].starts_with("policy") ? "needs" : "need",
                  needed, found, fmt::join(remedies, ", ")));
}

}  // namespace mgpu::train
