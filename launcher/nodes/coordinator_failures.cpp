// The part of the coordinator that ends a round and decides what happens next.

#include <fmt/format.h>

#include <algorithm>

#include "launcher/nodes/coordinator.hpp"
#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {

using rendezvous::End;
using rendezvous::NodeEnded;
using rendezvous::Notice;
using rendezvous::Stop;

void Coordinator::stop_round(const std::string& why, NodeId except, LeaderTime now,
                             StopCause cause) {
  phase_ = Phase::stopping;
  last_call_.reset();
  round_.stop_because(why);
  for (const NodeId id : round_.working())
    if (id != except) nodes_.at(id).since = now;
  send_stop(why, except, cause);
}

// To the nodes whose ranks still run. Ranks that got another signal before get this one too.
void Coordinator::send_stop(const std::string& why, NodeId except, StopCause cause) {
  for (const NodeId id : round_.working())
    if (id != except)
      actions_.emplace_back(SendMessage{id, Stop{round_.number(), why, cause.signo, cause.failed}});
}

void Coordinator::check_round_over(LeaderTime now) {
  if ((phase_ == Phase::running || phase_ == Phase::stopping) && round_.is_over(now))
    assess_round(now);
}

Decision Coordinator::decide(const NodeEnded& failure) {
  const Cause::Kind kind = kind_named(failure.cause);
  history_.push_back({kind,
                      std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::nanoseconds(failure.lasted)),
                      round_.last_step(), false, failure.certain, failure.text});
  if (settings_.limits.policies.of(kind) == FailurePolicy::restart_changed) ++counts_.oom_count;
  // Every failure so far led to a restart; some may have happened under an earlier leader.
  // Whether those counted is not known if progress renews restarts.
  const int before = settings_.limits.renewed_by_progress
                         ? 0
                         : std::max(counts_.restarts + 1 - static_cast<int>(history_.size()), 0);
  return decide_restart(history_, settings_.limits, before);
}

// Decides on a restart, and whether the node of the first failure keeps its place in the next
// round. Returns one line for the user if it does not.
std::string Coordinator::maybe_exclude(const NodeRound::Failures& failures, Decision& decision) {
  using Verdict = FaultyNodes::Verdict;
  const auto& [id, failure] = failures.front();
  const Cause::Kind kind = kind_named(failure.cause);
  const auto alike = std::ranges::count_if(
      failures, [&](const auto& other) { return other.second.cause == failure.cause; });
  const Verdict verdict = faulty_nodes_.assess({.node = id,
                                                .host = host_of(id),
                                                .rank = failure.rank,
                                                .cause = kind,
                                                .on_other_nodes_too = alike > 1},
                                               is_dispensable(id));
  // Without the node a restart may help after all.
  if (verdict == Verdict::faulty && !history_.empty()) history_.back().of_node = true;
  decision = decide(failure);
  if (!decision.restart || verdict == Verdict::none) return {};
  const std::string why = fmt::format("rank {} ({})", failure.rank, name_of(kind));
  return verdict == Verdict::faulty ? exclude(id, why) : clear(faulty_nodes_.cleared(), id, why);
}

// Whether the next round can start without this node. With --rank0-store the ranks need the
// leader's node.
bool Coordinator::is_dispensable(NodeId id) const {
  const Node& node = nodes_.at(id);
  const bool has_store = node.join.leads && node.join.rank0_port != 0;
  return node.eligible() && available_nodes() > settings_.min_nodes && !has_store;
}

std::string Coordinator::exclude(NodeId id, const std::string& why) {
  Node& node = nodes_.at(id);
  std::vector<NodeId> spares;
  for (const NodeId other : candidates())
    if (!round_.has(other)) spares.push_back(other);
  std::string fate = "is excluded from the job";
  if (spares.size() == 1) fate = fmt::format("is replaced by {}", host_of(spares.front()));
  if (spares.size() > 1) fate = "is replaced by a spare";
  node.excluded = true;
  std::string line = fmt::format(
      "node {} ({}) {}: a rank on it failed first in two attempts in a row, the last time {}",
      node.node_rank, node.join.host, fate, why);
  actions_.emplace_back(SendMessage{
      id, Notice{line + "; this node waits for the end of the job. Restart mgpu-run here to join "
                        "again",
                 true}});
  return line;
}

// The failure has followed its rank from this node to another one.
std::string Coordinator::clear(NodeId id, NodeId now_failing, const std::string& why) {
  const auto found = nodes_.find(id);
  std::string line = fmt::format(
      "{} failed on {} as it had on {}: the failure follows the rank, so no further node is "
      "replaced or excluded",
      why, host_of(now_failing), host_of(id));
  if (found == nodes_.end()) return line;
  found->second.excluded = false;
  return line + fmt::format("; {} may take part again", host_of(id));
}

void Coordinator::assess_round(LeaderTime now) {
  RoundEnded over{
      .round = round_.number(), .failures = round_.failures(), .why = round_.stop_reason()};
  over.last_step = round_.last_step();
  over.lost_node = round_.has_lost_node();
  const bool failed =
      !over.failures.empty() &&
      !round_.has_external_cause(over.failures.front().second, settings_.keep_alive / 10);
  if (stop_signal_ == 0 && round_.all_done() && over.why.empty()) {
    actions_.emplace_back(std::move(over));
    return finish(0, "");
  }
  int status = exit_status::of_signal(stop_signal_);
  if (failed && stop_signal_ == 0) {
    over.decision.emplace();
    over.node_change = maybe_exclude(round_.attributed_failures(), *over.decision);
    const int reported = over.failures.front().second.status;
    status = reported > 0 && reported < 256 ? reported : 1;
  }
  const auto decision = over.decision;
  const std::string why = over.why;
  actions_.emplace_back(std::move(over));
  if (stop_signal_ != 0) return finish(exit_status::of_signal(stop_signal_), why);
  if (decision && !decision->restart) return finish(status, "");
  free_nodes();
  if (decision) ++counts_.restarts;
  if (decision && decision->delay.count() > 0) {
    phase_ = Phase::resting;
    rest_until_ = now + decision->delay;
    return;
  }
  start_gathering(now);
}

// All remaining nodes wait for the next round.
void Coordinator::free_nodes() {
  std::erase_if(nodes_, [](const auto& entry) { return entry.second.gone; });
  round_ = NodeRound(round_.number());
  recount();
}

void Coordinator::start_gathering(LeaderTime now) {
  phase_ = Phase::gathering;
  join_deadline_ = now + settings_.join_timeout;
  maybe_start_round(now);
}

void Coordinator::finish(int status, const std::string& why) {
  phase_ = Phase::over;
  actions_.emplace_back(JobEnded{status, stop_signal_, why});
  for (const auto& [id, node] : nodes_)
    if (!node.gone) {
      actions_.emplace_back(SendMessage{id, End{.status = status}});
      actions_.emplace_back(Dismiss{id});
    }
}

}  // namespace mgpu::launcher
