#include "launcher/nodes/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/options/options.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/membership.hpp"

namespace mgpu::launcher {

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
      had_round_(settings.nodes_before > 0),
      faulty_nodes_(settings.limits.policies) {}

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
  const auto why = signo != 0 ? fmt::format("{} was asked to stop", node.join.host)
                              : fmt::format("a rank on {} failed", node.join.host);
  const StopCause cause = signo != 0 ? StopCause{signo, false} : kFailure;
  if (phase_ == Phase::stopping) send_stop(why, id, cause);
  if (phase_ == Phase::running) stop_round(why, id, now, cause);
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
    stop_round(fmt::format("the ranks on {} {}", host_of(id), name_of(end.outcome)), id, now,
               {15, end.outcome == Outcome::failed});
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
    if (phase_ == Phase::running) stop_round(why, 0, now, {signo, false});
    if (phase_ == Phase::gathering || phase_ == Phase::resting)
      finish(exit_status::of_signal(stop_signal_), why);
  } else if (mattered && phase_ == Phase::running) {
    actions_.emplace_back(PrintLine{fmt::format("{}; the others form a new round", why)});
    stop_round(why, 0, now, kFailure);
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
  const auto why = fmt::format("{} is lost", host);
  if (phase_ == Phase::stopping) send_stop(why, id, kFailure);
  if (phase_ == Phase::running) stop_round(why, id, now, kFailure);
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

}  // namespace mgpu::launcher
