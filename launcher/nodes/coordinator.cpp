#include "launcher/nodes/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/options/options.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/membership.hpp"

namespace mgpu::launcher {

using rendezvous::Begin;
using rendezvous::NodeEnded;
using rendezvous::Outcome;
using rendezvous::Refusal;

namespace {

// A limit for the counts of join requests. A request beyond it is an error or an attack.
constexpr int kMaxJoinCount = 1'000'000;
constexpr std::size_t kMaxNameBytes = 255;

bool is_valid(const rendezvous::Join& join) {
  const auto within = [](int number, int least, int most) {
    return number >= least && number <= most;
  };
  const auto is_wait = [](std::int64_t time) { return time >= 0 && time <= kLongestGrace.count(); };
  return within(join.nproc, 1, kMostRanks) && within(join.rank0_port, 0, kLastPort) &&
         within(join.nodes, 0, kMaxJoinCount) && within(join.rounds, 0, kMaxJoinCount) &&
         within(join.restarts, 0, kMaxJoinCount) && within(join.oom_count, 0, kMaxJoinCount) &&
         is_wait(join.grace) && is_wait(join.lease_and_grace);
}

// The signal that a node reports it was stopped with; SIGTERM if the number is invalid.
int signal_of(int signo) {
  constexpr int kLast = 64, kTerm = 15;
  return signo >= 0 && signo <= kLast ? signo : kTerm;
}

double in_seconds(LeaderTime time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Coordinator::Coordinator(Settings settings, JobCounts counts, LeaderTime now)
    : settings_(settings),
      counts_(counts),
      began_(now),
      grace_(settings.grace),
      join_deadline_(now + settings.join_timeout),
      hold_until_(now +
                  std::max(settings.keep_alive + settings.grace, settings.lease_and_grace_before)),
      nodes_before_(settings.nodes_before),
      had_round_(settings.nodes_before > 0) {}

Coordinator::Actions Coordinator::take_actions() {
  return std::exchange(actions_, {});
}

// --- Events

Coordinator::Actions Coordinator::joined(NodeId id, const rendezvous::Join& join, LeaderTime now) {
  if (phase_ == Phase::over) {
    actions_.emplace_back(SendMessage{id, Refusal{exit_status::kFailure, "the job has ended"}});
    actions_.emplace_back(Dismiss{id});
    return take_actions();
  }
  if (join.node_rank >= settings_.max_nodes) {
    actions_.emplace_back(SendMessage{
        id,
        Refusal{exit_status::kUsage,
                fmt::format("node rank {} is out of range: --nnodes is {}, so it must be 0 to {}",
                            join.node_rank, settings_.max_nodes, settings_.max_nodes - 1)}});
    actions_.emplace_back(Dismiss{id});
    return take_actions();
  }
  if (!is_valid(join)) {
    actions_.emplace_back(
        SendMessage{id, Refusal{exit_status::kUsage,
                                "invalid join request: a number of ranks, rounds "
                                "or restarts, a port or a time is out of range"}});
    actions_.emplace_back(Dismiss{id});
    return take_actions();
  }
  const bool is_news = join.rounds > counts_.rounds;
  if (round_.number() < 0) note_last_round(join);
  counts_.rounds = std::max(counts_.rounds, join.rounds);
  counts_.restarts = std::max(counts_.restarts, join.restarts);
  counts_.oom_count = std::max(counts_.oom_count, join.oom_count);
  hold_until_ = std::max(hold_until_, began_ + LeaderTime(join.lease_and_grace));
  Node& node = nodes_[id] = {.join = join, .since = now, .excluded = join.excluded};
  node.join.host = rendezvous::shown(join.host, kMaxNameBytes);
  rejoined_ += has_rejoined(node);
  if (node.excluded)
    actions_.emplace_back(
        PrintLine{fmt::format("{} is back, but stays excluded from the job", node.join.host)});
  node.disputing = !node.excluded && holder_of(join.node_rank, id);
  if (node.eligible() && join.node_rank >= 0) rank_holders_[join.node_rank] = id;
  if (is_news || !node.eligible()) recount();
  has_news_ = true;
  maybe_start_round(now);
  return take_actions();
}

Coordinator::Actions Coordinator::failing(NodeId id, const rendezvous::Failing& failing,
                                          LeaderTime now) {
  if (!round_.is_working(id) || failing.round != round_.number()) return take_actions();
  const Node& node = nodes_.at(id);
  const int signo = signal_of(failing.signo);
  if (signo != 0) {
    const auto when = std::clamp(LeaderTime(failing.when), now - settings_.keep_alive, now);
    round_.disturb(when);
    if (ends_the_job(node)) stop_signal_ = signo;
  }
  if (phase_ == Phase::stopping && signo != 0)
    send_stop(fmt::format("{} was asked to stop", node.join.host), id, signo);
  if (phase_ != Phase::running) return take_actions();
  if (signo != 0)
    stop_round(fmt::format("{} was asked to stop", node.join.host), id, now, signo);
  else
    stop_round(fmt::format("a rank on {} failed", node.join.host), id, now);
  return take_actions();
}

// A static job cannot continue without a node, and no job without a leader that cannot be replaced.
bool Coordinator::ends_the_job(const Node& node) const {
  return (node.join.leads && !settings_.elected) || (settings_.static_ranks && node.node_rank >= 0);
}

Coordinator::Actions Coordinator::ended(NodeId id, const NodeEnded& end, LeaderTime now) {
  if (!round_.is_working(id) || end.round != round_.number()) return take_actions();
  round_.end(id, end);
  nodes_.at(id).since = now;
  if (phase_ == Phase::running && end.outcome != Outcome::done)
    stop_round(fmt::format("the ranks on {} {}", host_of(id), name_of(end.outcome)), id, now);
  check_round_over(now);
  return take_actions();
}

Coordinator::Actions Coordinator::leaves(NodeId id, const rendezvous::Leave& leave,
                                         LeaderTime now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return take_actions();
  const Node node = found->second;
  const int signo = signal_of(leave.signo);
  const bool mattered = round_.has(id) && !round_.has_ended(id);
  remove_node(id);
  if (mattered) round_.disturb(now);
  const std::string why =
      fmt::format("{} {}", node.join.host, rendezvous::shown(leave.why, kMaxNameBytes));
  if (phase_ == Phase::over) return take_actions();
  if (signo != 0 && ends_the_job(node)) {
    stop_signal_ = signo;
    round_.replace_stop_reason(why);
    if (phase_ == Phase::running) stop_round(why, 0, now, signo);
    if (phase_ == Phase::gathering || phase_ == Phase::resting)
      finish(exit_status::of_signal(stop_signal_), why);
  } else if (mattered && phase_ == Phase::running) {
    actions_.emplace_back(PrintLine{fmt::format("{}; the others form a new round", why)});
    stop_round(why, 0, now);
  }
  check_round_over(now);
  return take_actions();
}

Coordinator::Actions Coordinator::gone(NodeId id, LeaderTime last_heartbeat, bool certainly_ended,
                                       const std::string& how, LeaderTime now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return take_actions();
  Node& node = found->second;
  const std::string host = node.join.host;
  if (!round_.has(id) || round_.has_ended(id)) {
    remove_node(id);
    return take_actions();
  }
  node.gone = true;
  recount();
  node.since = now;
  const LeaderTime dead_by = certainly_ended ? now : last_heartbeat + lease_and_grace();
  round_.lose(id, last_heartbeat, dead_by);
  std::string wait;
  if (dead_by > now)
    wait = fmt::format(" within {:.1f} s, when its ranks have certainly ended",
                       in_seconds(dead_by - now));
  actions_.emplace_back(
      PrintLine{fmt::format("node {} ({}) is lost: {}; the other nodes stop and continue{}",
                            node.node_rank, host, how, wait)});
  if (phase_ == Phase::running) stop_round(fmt::format("{} is lost", host), id, now);
  check_round_over(now);
  return take_actions();
}

// The result that a node has reported counts until the round is assessed, even if the node is gone.
void Coordinator::remove_node(NodeId id) {
  if (round_.has_ended(id) && (phase_ == Phase::running || phase_ == Phase::stopping)) {
    nodes_.at(id).gone = true;
  } else {
    nodes_.erase(id);
    round_.remove(id);
  }
  recount();
}

Coordinator::Actions Coordinator::tick(LeaderTime now) {
  last_tick_ = now;
  if (leader_is_suspended()) return take_actions();  // it was resumed, and will report that
  resolve_disputes(now);
  if (phase_ == Phase::stopping) check_round_over(now);
  if (phase_ == Phase::resting && now >= rest_until_) start_gathering(now);
  if (phase_ == Phase::running && last_call_) maybe_admit_newcomers(now);
  if (phase_ == Phase::gathering) {
    maybe_start_round(now);
    if (phase_ == Phase::gathering && now >= join_deadline_ &&
        available_nodes() < settings_.min_nodes)
      finish(exit_status::kRendezvousFailed,
             fmt::format("not enough nodes joined within {:g} s: {}",
                         in_seconds(settings_.join_timeout), missing()));
  }
  notify_waiting(now);
  return take_actions();
}

std::optional<LeaderTime> Coordinator::next_deadline() const {
  std::optional<LeaderTime> next;
  // What was due at the last tick was handled then, or waits for another event.
  const auto at = [&](LeaderTime time) {
    if (time > last_tick_) next = next ? std::min(*next, time) : time;
  };
  if (phase_ == Phase::gathering) at(join_deadline_);
  if ((phase_ == Phase::gathering || phase_ == Phase::running) && last_call_) at(*last_call_);
  if (phase_ == Phase::gathering && nodes_before_ > 0) at(hold_until_);
  if (has_news_) at(noticed_at_ + kNoticeInterval);
  if (phase_ == Phase::resting) at(rest_until_);
  if (unavailable_ == 0) return next;
  for (const auto& [id, node] : nodes_)
    if (node.disputing) at(node.since + settings_.keep_alive);
  if (phase_ == Phase::stopping)
    for (const LeaderTime dead_by : round_.dead_by()) at(dead_by);
  return next;
}

// --- Forming a round

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
  stop_round(join, 0, now);
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
