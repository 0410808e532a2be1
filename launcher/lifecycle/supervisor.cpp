#include "launcher/lifecycle/supervisor.hpp"

#include <algorithm>
#include <csignal>

#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {

std::vector<Action> Supervisor::start() {
  if (multi_node_) return {};
  return begin_attempt();
}

std::vector<Action> Supervisor::handle(const Event& event) {
  return std::visit([this](const auto& e) { return on(e); }, event);
}

std::string_view Supervisor::phase() const {
  switch (state_) {
    case State::running:
      return "running";
    case State::waiting:
      return "waiting to restart";
    case State::done:
      return "over";
    default:
      return "stopping";
  }
}

Supervisor::Actions Supervisor::begin_attempt() {
  state_ = State::running;
  std::fill(running_.begin(), running_.end(), true);
  replacements_ = 0;
  first_failed_ = failed_while_stopping_ = -1;
  first_report_ = {};
  grace_started_ = false;
  stopped_ = aborting_ = false;
  sent_signals_.clear();
  return {StartRanks{++attempt_}};
}

Supervisor::Actions Supervisor::on(const RankExited& event) {
  if (state_ == State::running && !event.report.clean() && event.replaceable)
    return {ReplaceRank{event.rank, ++replacements_}};
  running_[static_cast<size_t>(event.rank)] = false;
  Actions actions;
  if (!event.report.clean() && state_ == State::running) {
    first_failed_ = event.rank;
    first_report_ = event.report;
    actions = abort_ranks();
  } else if (state_ == State::stopping && !aborting_) {
    const bool failed = !is_result_of_stop(event.report);
    if (failed) failed_while_stopping_ = event.rank;
    // The stop signal may also kill a new process while it starts, and the others wait for that.
    const bool was_new = replacements_ > 0 && event.report.signal;
    if (failed || was_new) actions = abort_ranks();
    if (failed && multi_node_) actions.push_back(ReportFailure{});
  }
  if (none_running() && (state_ == State::running || state_ == State::stopping)) {
    state_ = State::sweeping;
    // Orphan processes get the same grace period as the ranks.
    if (!grace_started_) actions.push_back(StartGrace{});
    grace_started_ = true;
    actions.push_back(Sweep{});
  }
  return actions;
}

// It does not react to requests, and there is nothing that it could save.
Supervisor::Actions Supervisor::on(const HangFound& event) {
  if (state_ != State::running || !running_[static_cast<size_t>(event.rank)]) return {};
  first_failed_ = event.rank;
  first_report_ = {.signal = SIGKILL};
  Actions actions = abort_ranks();
  for (auto& action : actions)
    if (action == Action(AbortRank{event.rank})) action = SignalRank{event.rank, SIGKILL};
  return actions;
}

Supervisor::Actions Supervisor::on(const StopRequested& event) {
  if (state_ == State::done) return {};
  if (!stop_signal_) stop_signal_ = event.signal;
  switch (state_) {
    case State::running:
    case State::stopping:
      return stop_ranks(event.signal);
    case State::waiting:
      if (multi_node_) return leave_job();
      return finish(stop_signal_.shell_status());
    case State::assessing:
      if (multi_node_) return leave_job();
      break;
    case State::sweeping:  // only orphan processes are left
    case State::leaving:   // the leader has been informed
    case State::done:
      break;
  }
  return {};
}

Supervisor::Actions Supervisor::on(const KillRequested&) {
  if (state_ == State::waiting || state_ == State::leaving ||
      (multi_node_ && state_ == State::assessing))
    return finish(stop_signal_.shell_status());
  return kill_all();
}

Supervisor::Actions Supervisor::on(const GraceExpired&) {
  if (state_ == State::stopping || state_ == State::sweeping) return kill_all();
  return {};
}

Supervisor::Actions Supervisor::on(const TreeEmpty&) {
  if (state_ != State::sweeping) return {};
  if (final_status_ >= 0) return finish(final_status_);
  if (first_failed_ < 0 && !multi_node_)
    return finish(stop_signal_ ? stop_signal_.shell_status() : 0);
  if (multi_node_ && stop_signal_) return leave_job();
  state_ = State::assessing;
  return {AssessFailure{}};
}

Supervisor::Actions Supervisor::leave_job() {
  state_ = State::leaving;
  return {LeaveJob{stop_signal_}};
}

Supervisor::Actions Supervisor::on(const RoundStarted& event) {
  if (active() || state_ == State::done || stop_signal_) return {};
  attempt_ = event.attempt - 1;
  return begin_attempt();
}

Supervisor::Actions Supervisor::on(const RoundStopRequested& event) {
  if (state_ != State::running && state_ != State::stopping) return {};
  return event.peer_failed && !aborting_ ? abort_ranks() : stop_ranks(event.signal);
}

Supervisor::Actions Supervisor::on(const JobFinished& event) {
  if (state_ == State::done) return {};
  if (!active()) return finish(event.status);
  final_status_ = event.status;
  return state_ == State::running ? stop_ranks(SIGTERM) : Actions{};
}

Supervisor::Actions Supervisor::on(const FailureAssessed& event) {
  if (state_ != State::assessing) return {};
  if (!event.decision.restart) return finish(first_report_.shell_status());
  if (stop_signal_) return finish(stop_signal_.shell_status());
  if (event.decision.delay.count() == 0) return begin_attempt();
  state_ = State::waiting;
  return {StartDelay{event.decision.delay}};
}

Supervisor::Actions Supervisor::on(const DelayExpired&) {
  if (state_ != State::waiting) return {};
  return begin_attempt();
}

Supervisor::Actions Supervisor::stop_ranks(Signal signal) {
  if (!sent_signals_.empty() && signal == sent_signals_.back()) return {};
  return stop_running(signal, false, [signal](int rank) { return SignalRank{rank, signal}; });
}

// A rank that cannot be told why it has to stop gets SIGTERM, unless it is stopping already.
Supervisor::Actions Supervisor::abort_ranks() {
  aborting_ = true;
  const bool signalled = !sent_signals_.empty();
  return stop_running(SIGTERM, true, [signalled](int rank) { return AbortRank{rank, signalled}; });
}

template <class Stop>
Supervisor::Actions Supervisor::stop_running(Signal signal, bool after_failure, Stop stop) {
  state_ = State::stopping;
  stopped_ = true;
  sent_signals_.push_back(signal);
  Actions actions;
  for (size_t rank = 0; rank < running_.size(); ++rank)
    if (running_[rank]) actions.push_back(stop(static_cast<int>(rank)));
  if (!actions.empty() && !grace_started_) {
    actions.push_back(StartGrace{after_failure});
    grace_started_ = true;
  }
  return actions;
}

Supervisor::Actions Supervisor::kill_all() {
  sent_signals_.push_back(SIGKILL);
  return {KillAll{}};
}

Supervisor::Actions Supervisor::finish(int status) {
  state_ = State::done;
  return {Finish{status}};
}

bool Supervisor::none_running() const {
  return std::none_of(running_.begin(), running_.end(), [](bool running) { return running; });
}

// Ranks that handle a signal exit with 0 or with the status that shells report for it. A rank that
// was still to be started counts as one that cannot be executed.
bool Supervisor::is_result_of_stop(const ExitReport& report) const {
  return report.clean() || report.code == exit_status::kCannotExecute ||
         std::ranges::any_of(sent_signals_, [&](Signal sent) {
           return report.shell_status() == sent.shell_status();
         });
}

}  // namespace mgpu::launcher
