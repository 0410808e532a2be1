#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/failure_kind.hpp"

namespace mgpu::launcher {

// What happens after a failure while restarts are left.
enum class FailurePolicy {
  restart,
  restart_changed,      // MGPU_OOM_COUNT increases, by which programs use less memory
  exclude_node,         // restart; a node that fails twice in a row gives up its place
  give_up_if_repeated,  // restart, unless the same failure came twice in a row at the same place
  give_up,              // end the job
};

// The name used in options and reports, such as "give_up".
std::string_view name_of(FailurePolicy policy);
// The inverse of name_of; nullopt for an unknown name.
std::optional<FailurePolicy> policy_named(std::string_view name);
std::vector<std::string_view> policy_names();

FailurePolicy default_policy(FailureKind kind);

// The policies of a job: those that the user has chosen, and defaults for all other kinds.
struct FailurePolicies {
  std::map<FailureKind, FailurePolicy> chosen = {};

  bool is_chosen(FailureKind kind) const { return chosen.contains(kind); }
  FailurePolicy of(FailureKind kind) const;
  friend bool operator==(const FailurePolicies&, const FailurePolicies&) = default;
};

}  // namespace mgpu::launcher
