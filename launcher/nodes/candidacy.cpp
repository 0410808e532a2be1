#include "launcher/nodes/candidacy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {

Candidacy::Actions Candidacy::handle(const CandidacyEvent& event) {
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(actions_, {});
}

void Candidacy::on(const ElectionChanged& event) {
  if (!takes_part()) return;
  news_ = event;
  const auto& status = event.status;
  // A running job survives changes of etcd's users: only a new one ends here.
  if (status.permanent && job_ == 0)
    return end_job(exit_status::kUsage, fmt::format("etcd: {}", status.problem));
  if (settings_.address.empty() && status.problem.empty()) {
    actions_.emplace_back(FindAddress{});
    return;
  }
  consider();
}

void Candidacy::on(const AddressFound& event) {
  if (!takes_part()) return;
  settings_.address = event.address;
  if (settings_.address.empty())
    return end_job(exit_status::kUsage,
                   "cannot determine the address at which other nodes reach this one; set it with "
                   "--local-addr");
  consider();
}

// What the last news means.
void Candidacy::consider() {
  const auto& status = news_.status;
  if (!status.is_leader && state_ == State::leading) {
    actions_.emplace_back(
        PrintLine{"this node is no longer the leader: another node is, or etcd cannot be reached"});
    actions_.emplace_back(StopLeader{});
    state_ = State::following;
  }
  if (!status.is_leader && state_ == State::following && !settings_.address.empty() &&
      !news_.standing)
    actions_.emplace_back(Stand{settings_.address});
  saved_ = parse_job_state(status.state.value_or(""));
  if (saved_ && (job_ == 0 ? saved_->ended.has_value() : saved_->job < job_))
    saved_.reset();  // of an older job with this id
  if (saved_ && job_ == 0) job_ = saved_->job;
  if (saved_ && saved_->job != job_)
    return end_job(exit_status::kFailure,
                   fmt::format("another job with the id {} is running now", settings_.job));
  print_once(status.state_rejected);
  if (status.is_leader && state_ != State::leading) return take_over();
  follow();
}

// Continues from the state that the last leader saved, if any.
void Candidacy::take_over() {
  if (saved_ && saved_->ended) return end_job(*saved_->ended, "the job has ended");
  StartLeader start{.counts = news_.counts};
  if (saved_) {
    start.counts = {.rounds = std::max(start.counts.rounds, saved_->counts.rounds),
                    .restarts = std::max(start.counts.restarts, saved_->counts.restarts),
                    .oom_count = std::max(start.counts.oom_count, saved_->counts.oom_count)};
    start.nodes_before = saved_->nodes;
    start.left_before = saved_->left;
    start.lease_and_grace_before = saved_->lease_and_grace;
  }
  // It may have replaced our job's state, so any number of nodes may still run.
  if (!news_.status.state_rejected.empty() && job_ != 0) start.nodes_before = settings_.max_nodes;
  actions_.emplace_back(start);
}

void Candidacy::on(const LeaderStarted&) {
  state_ = State::leading;
  if (job_ == 0) job_ = news_.status.term;
  follow();
}

// Meanwhile a node whose port is free can lead.
void Candidacy::on(const LeaderNotStarted& event) {
  // Retried often, printed once.
  if (std::exchange(start_problem_, event.problem) != event.problem)
    actions_.emplace_back(PrintLine{event.problem});
  actions_.emplace_back(StepAside{});
  state_ = State::paused;
}

void Candidacy::on(const PauseOver&) {
  if (state_ != State::paused) return;
  state_ = State::following;
  actions_.emplace_back(Stand{settings_.address});
}

void Candidacy::follow() {
  const auto& status = news_.status;
  // The leader that this agent is connected to has proven that it has the secret, and closes the
  // connection itself when it no longer leads.
  if (state_ == State::leading || news_.connected) print_once(status.leader_rejected);
  if (!status.leader_rejected.empty() && news_.connected) return;
  std::string problem = "no node is the leader";
  if (!status.leader_rejected.empty()) problem = status.leader_rejected;
  if (!status.problem.empty()) problem = fmt::format("etcd: {}", status.problem);
  actions_.emplace_back(FollowLeader{status.leader, problem});
}

void Candidacy::on(const LeaderFollowed& event) {
  // A connected agent gets a more detailed message from the leader.
  if (takes_part() && saved_ && saved_->ended && !event.connected)
    end_job(*saved_->ended, "the job has ended");
}

void Candidacy::on(const StateChanged& event) {
  own_ = {.job = job_,
          .counts = event.counts,
          .nodes = event.nodes,
          .lease_and_grace = event.lease_and_grace};
  actions_.emplace_back(SaveState{own_});
}

// The others continue under another leader without waiting for this node.
void Candidacy::on(const LeaveRequested& event) {
  state_ = State::leaving;
  leave_status_ = event.status;
  actions_.emplace_back(StopLeader{});
  if (event.alone) {
    actions_.emplace_back(SaveEnd{{.job = job_, .ended = event.status}});
  } else if (own_.job == 0) {
    actions_.emplace_back(Resign{});
  } else {
    own_.left = 1;
    actions_.emplace_back(SaveBeforeLeaving{own_});
  }
}

void Candidacy::on(const StateSaved&) {
  actions_.emplace_back(Resign{});
}

void Candidacy::on(const Resigned&) {
  if (state_ == State::leaving) return end_job(leave_status_, "");
  actions_.emplace_back(CloseElection{});
}

void Candidacy::on(const JobIsOver&) {
  if (state_ != State::leaving) state_ = State::over;
}

void Candidacy::on(const ProcessEnds& event) {
  if (event.leading)
    actions_.emplace_back(SaveEnd{{.job = job_, .ended = event.status}});
  else
    actions_.emplace_back(CloseElection{});
}

void Candidacy::end_job(int status, const std::string& message) {
  state_ = State::over;
  actions_.emplace_back(EndJob{status, message});
}

// Others may write to etcd again and again.
void Candidacy::print_once(const std::string& line) {
  if (!line.empty() && printed_.insert(line).second) actions_.emplace_back(PrintLine{line});
}

}  // namespace mgpu::launcher
