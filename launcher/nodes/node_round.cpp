#include "launcher/nodes/node_round.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/lifecycle/failure_kind.hpp"

namespace mgpu::launcher {

using rendezvous::NodeEnded;
using rendezvous::Outcome;

NodeRound::NodeRound(int number, const std::vector<NodeId>& nodes) : number_(number) {
  for (const NodeId node : nodes) nodes_[node] = {};
  working_ = nodes_.size();
}

const NodeRound::Node* NodeRound::find(NodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

bool NodeRound::has_ended(NodeId node) const {
  const Node* const found = find(node);
  return found && found->result;
}

bool NodeRound::is_lost(NodeId node) const {
  const Node* const found = find(node);
  return found && found->lost;
}

bool NodeRound::is_working(NodeId node) const {
  const Node* const found = find(node);
  return found && found->works();
}

std::vector<NodeId> NodeRound::working() const {
  std::vector<NodeId> ids;
  for (const auto& [id, node] : nodes_)
    if (node.works()) ids.push_back(id);
  return ids;
}

void NodeRound::end(NodeId node, const NodeEnded& result) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !found->second.works()) return;
  --working_;
  found->second.result = result;
}

std::int64_t NodeRound::last_step() const {
  std::int64_t last = -1;
  for (const auto& [id, node] : nodes_)
    if (node.result) last = std::max(last, node.result->last_step);
  return last;
}

void NodeRound::lose(NodeId node, LeaderTime last_heartbeat, LeaderTime dead_by) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || found->second.result) return;
  working_ -= found->second.works();
  found->second.lost = true;
  found->second.last_heartbeat = last_heartbeat;
  found->second.dead_by = dead_by;
}

void NodeRound::remove(NodeId node) {
  working_ -= is_working(node);
  nodes_.erase(node);
}

void NodeRound::disturb(LeaderTime when) {
  disturbed_at_ = std::min(disturbed_at_, when);
}

void NodeRound::stop_because(const std::string& why) {
  if (stop_reason_.empty()) stop_reason_ = why;
}

bool NodeRound::is_over(LeaderTime now) const {
  return working_ == 0 && std::ranges::all_of(nodes_, [&](const auto& entry) {
           return !entry.second.lost || now >= entry.second.dead_by;
         });
}

bool NodeRound::has_lost_node() const {
  return std::ranges::any_of(nodes_, [](const auto& entry) { return entry.second.lost; });
}

std::vector<LeaderTime> NodeRound::dead_by() const {
  std::vector<LeaderTime> times;
  for (const auto& [id, node] : nodes_)
    if (node.lost) times.push_back(node.dead_by);
  return times;
}

bool NodeRound::some_have_ended() const {
  return std::ranges::any_of(nodes_,
                             [](const auto& entry) { return entry.second.result.has_value(); });
}

bool NodeRound::all_done() const {
  return std::ranges::all_of(nodes_, [](const auto& entry) {
    return entry.second.result && entry.second.result->outcome == Outcome::done;
  });
}

NodeRound::Failures NodeRound::failures() const {
  Failures found;
  for (const auto& [id, node] : nodes_)
    if (node.result && node.result->outcome == Outcome::failed)
      found.emplace_back(id, *node.result);
  std::ranges::sort(found, {}, [](const auto& failure) {
    return std::pair(failure.second.cascade, failure.second.when);
  });
  return found;
}

NodeRound::Failures NodeRound::attributed_failures() const {
  auto found = failures();
  if (found.empty() || !found.front().second.waited) return found;
  auto& [first, failure] = found.front();
  const auto suspended = std::ranges::find_if(nodes_, [](const auto& entry) {
    return entry.second.result && entry.second.result->suspended >= 0;
  });
  if (suspended == nodes_.end()) return found;
  first = suspended->first;
  failure.rank = suspended->second.result->suspended;
  failure.cause = name_of(FailureKind::hang);
  failure.text = fmt::format("rank {} was suspended", failure.rank);
  failure.certain = failure.cascade = false;
  return found;
}

bool NodeRound::has_external_cause(const NodeEnded& failure, LeaderTime slack) const {
  const LeaderTime when(failure.when);
  if (when > disturbed_at_ - slack) return true;
  return std::ranges::any_of(nodes_, [&](const auto& entry) {
    return entry.second.lost && when > entry.second.last_heartbeat - slack;
  });
}

}  // namespace mgpu::launcher
