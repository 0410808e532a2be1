#include "launcher/lifecycle/failure_policy.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace mgpu::launcher {
namespace {

constexpr std::array<std::pair<FailurePolicy, std::string_view>, 5> kPolicyNames{{
    {FailurePolicy::restart, "restart"},
    {FailurePolicy::restart_changed, "restart_changed"},
    {FailurePolicy::exclude_node, "exclude_node"},
    {FailurePolicy::give_up_if_repeated, "give_up_if_repeated"},
    {FailurePolicy::give_up, "give_up"},
}};

}  // namespace

std::string_view name_of(FailurePolicy policy) {
  return std::ranges::find(kPolicyNames, policy, [](const auto& entry) { return entry.first; })
      ->second;
}

std::optional<FailurePolicy> policy_named(std::string_view name) {
  for (const auto& [policy, known] : kPolicyNames)
    if (known == name) return policy;
  return std::nullopt;
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const auto& [policy, name] : kPolicyNames) names.push_back(name);
  return names;
}

FailurePolicy default_policy(FailureKind kind) {
  using enum FailurePolicy;
  if (belongs_to_node(kind)) return exclude_node;
  if (counts_as_oom(kind)) return restart_changed;
  if (kind == FailureKind::data_error || kind == FailureKind::nan) return give_up_if_repeated;
  return is_retryable(kind) ? restart : give_up;
}

FailurePolicy FailurePolicies::of(FailureKind kind) const {
  const auto found = chosen.find(kind);
  return found == chosen.end() ? default_policy(kind) : found->second;
}

}  // namespace mgpu::launcher
