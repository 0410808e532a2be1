// The part of the coordinator that describes the job to the user.

#include <fmt/format.h>

#include <algorithm>

#include "launcher/nodes/coordinator.hpp"

namespace mgpu::launcher {

using rendezvous::Notice;

void Coordinator::notify_waiting(LeaderTime now) {
  if (!has_news_ || now < noticed_at_ + kNoticeInterval) return;
  has_news_ = false;
  noticed_at_ = now;
  const bool runs = phase_ == Phase::running;
  const std::string text =
      runs ? "the job has all its nodes; this node is a spare and replaces the next lost node"
           : missing();
  for (const auto& [id, node] : nodes_)
    if (!round_.has(id) && !node.disputing) actions_.emplace_back(SendMessage{id, Notice{text}});
}

std::string Coordinator::missing() const {
  const auto here = candidates();
  std::string text = fmt::format("{} of {} nodes joined", here.size(), settings_.min_nodes);
  if (here.size() >= static_cast<std::size_t>(settings_.min_nodes))
    text += ", last call for more nodes";
  if (here.size() > 8) return text;
  for (const NodeId id : here)
    text += fmt::format("{}{}", id == here.front() ? " (" : ", ", nodes_.at(id).join.host);
  if (!here.empty()) text += ")";
  if (!settings_.static_ranks) return text;
  std::string ranks;
  for (int rank = 0; rank < settings_.min_nodes && ranks.size() < 60; ++rank)
    if (std::none_of(here.begin(), here.end(),
                     [&](NodeId id) { return nodes_.at(id).join.node_rank == rank; }))
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  if (!ranks.empty()) text += fmt::format("; missing: node rank {}", ranks);
  return text;
}

std::string Coordinator::host_of(NodeId id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? "a node" : found->second.join.host;
}

std::string Coordinator::phase() const {
  switch (phase_) {
    case Phase::gathering:
      return "gathering";
    case Phase::running:
      return ranks_are_suspended() ? "suspended" : "running";
    case Phase::stopping:
      return "stopping";
    case Phase::resting:
      return "waiting to restart";
    case Phase::over:
      break;
  }
  return "over";
}

std::vector<Coordinator::NodeView> Coordinator::view() const {
  std::vector<NodeView> views;
  for (const auto& [id, node] : nodes_) {
    std::string state = phase_ == Phase::running ? "spare" : "waiting";
    if (round_.is_working(id)) state = phase_ == Phase::stopping ? "stopping" : "running";
    if (round_.has_ended(id)) state = "ended";
    if (node.suspended) state = "suspended";
    if (round_.is_lost(id)) state = "lost";
    views.push_back({.id = id,
                     .host = node.join.host,
                     .nproc = node.join.nproc,
                     .node_rank = node.node_rank,
                     .state = std::move(state),
                     .since = node.since});
  }
  std::sort(views.begin(), views.end(), [](const auto& a, const auto& b) {
    return std::pair(a.node_rank < 0, a.node_rank) < std::pair(b.node_rank < 0, b.node_rank);
  });
  return views;
}

}  // namespace mgpu::launcher
