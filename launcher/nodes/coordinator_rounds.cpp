// The part of the coordinator that forms rounds: which nodes take part, and when they start.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/nodes/coordinator.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/membership.hpp"

namespace mgpu::launcher {

using rendezvous::Begin;
using rendezvous::Refusal;

std::vector<NodeId> Coordinator::candidates() const {
  std::vector<NodeId> ids;
  for (const auto& [id, node] : nodes_)
    if (node.eligible()) ids.push_back(id);
  return ids;
}

// The nodes that have joined a running job and can take part in its next round. There are none if
// the job is full. If some nodes have finished, it is about to end: no new round for a new node.
std::vector<NodeId> Coordinator::newcomers() const {
  std::vector<NodeId> ids;
  const bool is_full = round_.size() >= static_cast<std::size_t>(settings_.max_nodes);
  if (phase_ != Phase::running || is_full || round_.some_have_ended() || ranks_are_suspended())
    return ids;
  for (const NodeId id : candidates())
    if (!round_.has(id)) ids.push_back(id);
  return ids;
}

// Stops the running round so that the new nodes can take part: at the end of a last call, during
// which the ranks go on, or as soon as the job is full. So nodes that join one after another cost
// one round.
void Coordinator::maybe_admit_newcomers(LeaderTime now) {
  const bool is_full = available_nodes() >= settings_.max_nodes;
  if (last_call_ && now < *last_call_ && !is_full) return;
  const auto ids = newcomers();
  if (ids.empty()) return last_call_.reset();
  const std::string join = fmt::format("{} {}", host_list(ids), ids.size() == 1 ? "joins" : "join");
  if (!last_call_ && !is_full && settings_.last_call.count() > 0) {
    last_call_ = now + settings_.last_call;
    actions_.emplace_back(
        PrintLine{fmt::format("{}; the ranks go on for {:g} s (last call for more nodes), then all "
                              "nodes form a new round",
                              join, in_seconds(settings_.last_call))});
    return;
  }
  round_.disturb(now);
  actions_.emplace_back(PrintLine{fmt::format("{}; all nodes stop and form a new round", join)});
  stop_round(join, 0, now, kNewNodes);
}

// Starts a round if one is possible now, or ends the running one for new nodes.
void Coordinator::maybe_start_round(LeaderTime now) {
  if (phase_ == Phase::running) return maybe_admit_newcomers(now);
  if (phase_ != Phase::gathering) return;
  if (available_nodes() < settings_.min_nodes) {
    last_call_.reset();
    return;
  }
  if (!had_round_ && available_nodes() < settings_.max_nodes) {
    if (!last_call_) last_call_ = std::min(now + settings_.last_call, join_deadline_);
    if (now < *last_call_) return;
  }
  if (old_round_may_run(now)) return;
  start_round(now);
}

// The size of a lost leader's last round, as a node reports it; that of an older one does not
// matter.
void Coordinator::note_last_round(const rendezvous::Join& join) {
  if (join.rounds > counts_.rounds) nodes_before_ = settings_.nodes_before;
  if (join.rounds >= counts_.rounds) nodes_before_ = std::max(nodes_before_, join.nodes);
}

// Whether a node was in the lost leader's last round: it must have been in the newest round that is
// known, because a spare or an excluded node may have been in an earlier one. A leader that was
// restarted on its old node counts too: the guard there has ended the node's ranks. That is not so
// for an elected leader.
bool Coordinator::has_rejoined(const Node& node) const {
  return (node.join.nodes > 0 && node.join.rounds == counts_.rounds) ||
         (node.join.leads && !settings_.elected);
}

bool Coordinator::old_round_may_run(LeaderTime now) const {
  return nodes_before_ > 0 && now < hold_until_ &&
         rejoined_ + settings_.left_before < nodes_before_;
}

void Coordinator::recount() {
  unavailable_ = rejoined_ = 0;
  for (const auto& [id, node] : nodes_) {
    unavailable_ += !node.eligible();
    rejoined_ += has_rejoined(node);
  }
  has_news_ = true;
}

std::optional<NodeId> Coordinator::holder_of(int node_rank, NodeId except) const {
  const auto holder = rank_holders_.find(node_rank);
  if (node_rank < 0 || holder == rank_holders_.end() || holder->second == except) return {};
  const auto node = nodes_.find(holder->second);
  if (node == nodes_.end() || node->second.gone || node->second.excluded) return {};
  return holder->second;
}

// Two nodes request one node rank. If the first is still connected after the keep-alive, it is
// alive and keeps the rank.
void Coordinator::resolve_disputes(LeaderTime now) {
  std::vector<NodeId> refused;
  for (auto& [id, node] : nodes_) {
    if (!node.disputing) continue;
    const int wanted = node.join.node_rank;
    const auto holder = holder_of(wanted, id);
    if (!holder) {
      node.disputing = false;
      rank_holders_[wanted] = id;
    } else if (now >= node.since + settings_.keep_alive) {
      const std::string& taker = nodes_.at(*holder).join.host;
      actions_.emplace_back(
          SendMessage{id, Refusal{exit_status::kUsage,
                                  fmt::format("node rank {} is taken by {}; give each node its own "
                                              "--node-rank",
                                              wanted, taker)}});
      actions_.emplace_back(Dismiss{id});
      actions_.emplace_back(PrintLine{
          fmt::format("rejected {}: node rank {} is taken by {}", node.join.host, wanted, taker)});
      refused.push_back(id);
    } else {
      continue;
    }
    has_news_ = true;
  }
  for (const NodeId id : refused) nodes_.erase(id);
  if (!has_news_) return;
  recount();
  maybe_start_round(now);
}

// If all nodes of the earlier rounds are gone, and none reported the job's end, the others start it
// from scratch.
void Coordinator::reset_counts_if_all_new() {
  const bool somebody_was_in_it = std::any_of(
      nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second.join.rounds > 0; });
  if (round_.number() < 0 && settings_.elected && !somebody_was_in_it)
    counts_.restarts = counts_.oom_count = 0;
}

// A node with a longer grace period than the leader's could still run its ranks when the others
// start without it. So the longest one counts on all nodes.
void Coordinator::agree_on_grace(const std::vector<NodeId>& nodes) {
  const auto before = std::exchange(grace_, settings_.grace);
  bool differs = false;
  for (const NodeId id : nodes) {
    const LeaderTime theirs(nodes_[id].join.grace);
    differs |= theirs != settings_.grace;
    grace_ = std::max(grace_, theirs);
  }
  if (differs && (grace_ != before || round_.number() == 0))
    actions_.emplace_back(
        PrintLine{fmt::format("the nodes have different grace periods; the longest, {:g} s, counts "
                              "on all of them; use the same --grace on all nodes",
                              in_seconds(grace_))});
}

// A leader over plain TCP comes back on its old node, whose ranks may not be in the round.
int Coordinator::nodes_to_rejoin() const {
  const bool leader_is_apart =
      !settings_.elected && std::ranges::any_of(nodes_, [&](const auto& entry) {
        return entry.second.join.leads && !round_.has(entry.first);
      });
  return static_cast<int>(round_.size()) + leader_is_apart;
}

void Coordinator::start_round(LeaderTime now) {
  reset_counts_if_all_new();
  std::vector<rendezvous::Candidate> here;
  for (const NodeId id : candidates()) {
    const Node& node = nodes_[id];
    here.push_back({.id = id,
                    .node_rank = node.join.node_rank,
                    .position = node.join.position,
                    .previous = node.node_rank,
                    .leads = node.join.leads});
  }
  const auto order = rendezvous::assign_node_ranks(std::move(here), settings_.max_nodes);
  const int round = counts_.rounds++;
  round_ = NodeRound(round, order);
  int world_size = 0;
  for (auto& [id, node] : nodes_) node.node_rank = -1;
  for (const NodeId id : order) world_size += nodes_[id].join.nproc;
  had_round_ = true;
  nodes_before_ = 0;
  last_call_.reset();
  phase_ = Phase::running;
  const int to_rejoin = nodes_to_rejoin();
  actions_.emplace_back(StartRound{round, order, to_rejoin});
  actions_.emplace_back(PrintLine{fmt::format("round {}: {} node{}, {} ranks", round, order.size(),
                                              order.size() == 1 ? "" : "s", world_size)});
  agree_on_grace(order);
  const auto& first = nodes_[order.front()].join;
  int base_rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Node& node = nodes_[order[i]];
    node.node_rank = static_cast<int>(i);
    node.since = now;
    actions_.emplace_back(SendMessage{order[i], Begin{.round = round,
                                                      .restarts = counts_.restarts,
                                                      .oom_count = counts_.oom_count,
                                                      .node_rank = node.node_rank,
                                                      .nodes = static_cast<int>(order.size()),
                                                      .base_rank = base_rank,
                                                      .world_size = world_size,
                                                      .grace = grace_.count(),
                                                      .master_port = first.rank0_port,
                                                      .direct_store = settings_.direct_store,
                                                      .to_rejoin = to_rejoin}});
    base_rank += node.join.nproc;
  }
  has_news_ = true;
}

}  // namespace mgpu::launcher
