// The part of the coordinator that keeps a job whose nodes are suspended.

#include <algorithm>
#include <utility>

#include "launcher/nodes/coordinator.hpp"

namespace mgpu::launcher {

bool Coordinator::leader_is_suspended() const {
  return std::ranges::any_of(nodes_, [](const auto& entry) {
    return entry.second.suspended && !entry.second.gone && entry.second.join.leads;
  });
}

bool Coordinator::ranks_are_suspended() const {
  return std::ranges::any_of(nodes_, [this](const auto& entry) {
    return entry.second.suspended && round_.is_working(entry.first);
  });
}

// While the leader is suspended, no node can send it heartbeats, and none of its times passes.
Coordinator::Actions Coordinator::suspends(NodeId id, bool suspended, LeaderTime now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.gone) return take_actions();
  Node& node = found->second;
  const bool changed = std::exchange(node.suspended, suspended) != suspended;
  recount();
  if (changed && node.join.leads) {
    const auto slept = now - std::exchange(leader_suspended_at_, now);
    for (auto* const time : {&join_deadline_, &rest_until_})
      if (!suspended) *time += slept;
    if (!suspended && last_call_) *last_call_ += slept;
  }
  const bool leader = leader_is_suspended();
  const rendezvous::Pause pause{
      .ranks = ranks_are_suspended(), .leader = leader, .host = node.join.host};
  for (const auto& [other, about] : nodes_) {
    if (about.gone || (!changed && other != id)) continue;
    if (node.join.leads || other == id)
      actions_.emplace_back(ExpectHeartbeats{other, !leader && !about.suspended});
    actions_.emplace_back(SendMessage{other, pause});
  }
  if (!suspended) maybe_start_round(now);
  return take_actions();
}

}  // namespace mgpu::launcher
