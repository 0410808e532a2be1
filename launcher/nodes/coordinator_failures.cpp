// The part of the coordinator that ends a round and decides what happens next.

#include <fmt/format.h>

#include <algorithm>

#include "launcher/nodes/coordinator.hpp"

namespace mgpu::launcher {

using rendezvous::End;
using rendezvous::NodeEnded;
using rendezvous::Outcome;
using rendezvous::Stop;

bool Coordinator::in_this_round(const Node& node) const {
  return node.part == Part::in_round || node.part == Part::ended;
}

void Coordinator::stop_round(const std::string& why, NodeId except, LeaderTime now, int signo) {
  phase_ = Phase::stopping;
  if (stop_why_.empty()) stop_why_ = why;
  for (auto& [id, node] : nodes_) {
    if (node.part != Part::in_round || node.lost || id == except) continue;
    node.since = now;
    actions_.emplace_back(SendMessage{id, Stop{round_, why, signo}});
  }
}

bool Coordinator::round_is_over(LeaderTime now) const {
  return working_ == 0 && std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
           const Node& node = entry.second;
           return node.part != Part::in_round || (node.lost && now >= node.dead_by);
         });
}

void Coordinator::check_round_over(LeaderTime now) {
  if ((phase_ == Phase::running || phase_ == Phase::stopping) && round_is_over(now))
    assess_round(now);
}

std::vector<std::pair<NodeId, NodeEnded>> Coordinator::failures() const {
  std::vector<std::pair<NodeId, NodeEnded>> found;
  for (const auto& [id, node] : nodes_)
    if (node.part == Part::ended && node.end->outcome == Outcome::failed)
      found.emplace_back(id, *node.end);
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.second.when < b.second.when; });
  return found;
}

bool Coordinator::has_lost_node() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return entry.second.lost && entry.second.part == Part::in_round;
  });
}

// Ranks fail when their peers vanish. A failure has its own cause only if it happened before the
// last heartbeat of a lost node, and before any node was asked to stop.
bool Coordinator::has_external_cause(const NodeEnded& failure) const {
  const LeaderTime slack = settings_.keep_alive / 10;
  const LeaderTime when(failure.when);
  if (when > disturbed_at_ - slack) return true;
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const Node& node = entry.second;
    return node.lost && node.part == Part::in_round && when > node.last_heartbeat - slack;
  });
}

Decision Coordinator::decide(const NodeEnded& failure) {
  const Cause::Kind kind = kind_named(failure.cause);
  history_.push_back({kind, std::chrono::duration_cast<std::chrono::milliseconds>(
                                std::chrono::nanoseconds(failure.lasted))});
  if (is_oom(kind)) ++counts_.oom_count;
  // Every failure so far led to a restart; some may have happened under an earlier leader.
  const int before = std::max(counts_.restarts + 1 - static_cast<int>(history_.size()), 0);
  return decide_restart(history_, settings_.limits, before);
}

void Coordinator::assess_round(LeaderTime now) {
  RoundEnded over{.round = round_, .failures = failures(), .why = stop_why_};
  const bool failed = !over.failures.empty() && !has_external_cause(over.failures.front().second);
  const bool all_done = std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return !in_this_round(entry.second) ||
           (entry.second.end && entry.second.end->outcome == Outcome::done);
  });
  if (!failed && !has_lost_node() && stop_signal_ == 0 && all_done && stop_why_.empty()) {
    actions_.emplace_back(std::move(over));
    return finish(0, "");
  }
  int status = 128 + stop_signal_;
  if (failed && stop_signal_ == 0) {
    over.decision = decide(over.failures.front().second);
    const int reported = over.failures.front().second.status;
    status = reported > 0 && reported < 256 ? reported : 1;
  }
  const auto decision = over.decision;
  const std::string why = stop_why_;
  actions_.emplace_back(std::move(over));
  if (stop_signal_ != 0) return finish(128 + stop_signal_, why);
  if (decision && !decision->restart) return finish(status, "");
  reset_round();
  if (decision) ++counts_.restarts;
  if (decision && decision->delay.count() > 0) {
    phase_ = Phase::resting;
    rest_until_ = now + decision->delay;
    return;
  }
  start_gathering(now);
}

// All remaining nodes wait for the next round.
void Coordinator::reset_round() {
  std::erase_if(nodes_, [](const auto& entry) { return entry.second.lost; });
  for (auto& [id, node] : nodes_) {
    if (in_this_round(node)) node.part = Part::waiting;
    node.end.reset();
  }
  recount();
  stop_why_.clear();
  disturbed_at_ = LeaderTime::max();
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
    if (!node.lost) {
      actions_.emplace_back(SendMessage{id, End{.status = status}});
      actions_.emplace_back(Dismiss{id});
    }
}

}  // namespace mgpu::launcher
