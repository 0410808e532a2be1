// The part of the coordinator that describes the job to the user.

#include <fmt/format.h>

#include <algorithm>

#include "launcher/nodes/coordinator.hpp"

namespace mgpu::launcher {

using rendezvous::Notice;

namespace {

constexpr std::size_t kMostHostsShown = 8;
constexpr const char* kExclusionNotice =
    "this node is excluded from the job because its ranks kept failing; it waits for the end of "
    "the "
    "job. Restart mgpu-run here to join again";

}  // namespace

void Coordinator::notify_waiting(LeaderTime now) {
  if (!has_news_ || now < noticed_at_ + kNoticeInterval) return;
  has_news_ = false;
  noticed_at_ = now;
  const std::string text = notice_for_waiting();
  for (const auto& [id, node] : nodes_)
    if (!round_.has(id) && !node.disputing)
      actions_.emplace_back(
          SendMessage{id, Notice{node.excluded ? kExclusionNotice : text, node.excluded}});
}

std::string Coordinator::notice_for_waiting() const {
  if (phase_ != Phase::running) return missing();
  if (round_.some_have_ended())
    return "ranks of the job have finished; this node takes part only if all ranks restart";
  if (last_call_)
    return "the job is running; this node takes part after the last call for more nodes";
  return "the job has all its nodes; this node is a spare and replaces the next lost node";
}

// The hosts of these nodes, or their number if there are many.
std::string Coordinator::host_list(const std::vector<NodeId>& ids) const {
  if (ids.size() > kMostHostsShown) return fmt::format("{} nodes", ids.size());
  std::string text;
  for (const NodeId id : ids) text += fmt::format("{}{}", text.empty() ? "" : ", ", host_of(id));
  return text;
}

std::string Coordinator::missing() const {
  const auto here = candidates();
  std::string text = fmt::format("{} of {} nodes joined", here.size(), settings_.min_nodes);
  if (here.size() >= static_cast<std::size_t>(settings_.min_nodes))
    text += ", last call for more nodes";
  if (here.size() > kMostHostsShown) return text;
  if (!here.empty()) text += fmt::format(" ({})", host_list(here));
  std::vector<NodeId> excluded;
  for (const auto& [id, node] : nodes_)
    if (node.excluded) excluded.push_back(id);
  if (!excluded.empty()) text += fmt::format("; excluded: {}", host_list(excluded));
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
  const bool has_spares = phase_ == Phase::running && !last_call_;
  for (const auto& [id, node] : nodes_) {
    std::string state = has_spares ? "spare" : "waiting";
    if (node.excluded) state = "excluded";
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
