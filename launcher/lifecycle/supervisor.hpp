#pragma once

#include <chrono>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/lifecycle/exit_report.hpp"
#include "launcher/lifecycle/restart_policy.hpp"

namespace mgpu::launcher {

// Events: what happens to a job, as seen by the event loop.
struct RankExited {
  int rank;
  ExitReport report;
  // A new process can take its place while all other ranks go on.
  bool replaceable = false;
};
// The job hangs, because of this rank as far as that can be known.
struct HangFound {
  int rank;
};
// A signal requests that the job stops.
struct StopRequested {
  Signal signal;
};
// The user requests an immediate end.
struct KillRequested {};
struct GraceExpired {};
// No process that the ranks started is alive.
struct TreeEmpty {};
// The decision of the restart policy, in answer to AssessFailure.
struct FailureAssessed {
  Decision decision;
};
struct DelayExpired {};
// Messages of the leader in a multi-node job.
struct RoundStarted {
  int attempt;
};
struct RoundStopRequested {
  Signal signal;
  bool peer_failed = false;  // a rank or a node of the job has failed or is lost
};
struct JobFinished {
  int status;
};
using Event =
    std::variant<RankExited, HangFound, StopRequested, KillRequested, GraceExpired, TreeEmpty,
                 FailureAssessed, DelayExpired, RoundStarted, RoundStopRequested, JobFinished>;

// Actions: what the event loop has to do.
struct StartRanks {
  int attempt;
  friend bool operator==(const StartRanks&, const StartRanks&) = default;
};
struct SignalRank {
  int rank;
  Signal signal;
  friend bool operator==(const SignalRank&, const SignalRank&) = default;
};
// Start a new process for this rank, which has failed, and tell the other ranks. Answer with
// RankExited if that is not possible.
struct ReplaceRank {
  int rank;
  int number;  // of the replacement in this attempt, from 1 on
  friend bool operator==(const ReplaceRank&, const ReplaceRank&) = default;
};
// Another rank has failed: whatever this one computes or waits for is lost.
struct AbortRank {
  int rank;
  bool signalled = false;  // it has got the stop signal before and needs no other one
  friend bool operator==(const AbortRank&, const AbortRank&) = default;
};
// Only in a multi-node job: inform the leader that a rank has failed while the ranks stop.
struct ReportFailure {
  friend bool operator==(const ReportFailure&, const ReportFailure&) = default;
};
struct StartGrace {
  bool after_failure = false;  // of a rank or node, so that nobody waits for the others' work
  friend bool operator==(const StartGrace&, const StartGrace&) = default;
};
struct KillAll {  // send SIGKILL to every rank and every process that they started
  friend bool operator==(const KillAll&, const KillAll&) = default;
};
struct Sweep {  // end the orphan processes; answer with TreeEmpty
  friend bool operator==(const Sweep&, const Sweep&) = default;
};
// Find out why first_failed() failed, consult the restart policy, answer with FailureAssessed. In a
// multi-node job: report the result of this node to the leader, which answers with RoundStarted or
// JobFinished.
struct AssessFailure {
  friend bool operator==(const AssessFailure&, const AssessFailure&) = default;
};
// Only in a multi-node job: no process of it is left on this node, which was asked to stop by this
// signal. Inform the leader that the node leaves; the answer is JobFinished.
struct LeaveJob {
  Signal signal;
  friend bool operator==(const LeaveJob&, const LeaveJob&) = default;
};
struct StartDelay {
  std::chrono::milliseconds delay;
  friend bool operator==(const StartDelay&, const StartDelay&) = default;
};
struct Finish {
  int status;
  friend bool operator==(const Finish&, const Finish&) = default;
};
using Action =
    std::variant<StartRanks, SignalRank, ReplaceRank, AbortRank, ReportFailure, StartGrace, KillAll,
                 Sweep, AssessFailure, LeaveJob, StartDelay, Finish>;

// Decides what happens to a group of ranks. It does no I/O and reads no clock: the event loop
// feeds it events and carries out the actions it returns.
//
//   running --(all exit with 0)-----------------------> sweeping --> done
//   running --(a rank fails that can be replaced)-----> running
//   running --(a rank fails, or a stop is requested)--> stopping --> sweeping --> assessing
//   assessing --> running again (perhaps after waiting) or done
//
// A hang is a failure of the rank that caused it, which is killed. A rank that fails while the
// ranks stop makes the others abort, because they may wait for it.
//
// The first failure of the last attempt sets the job's exit status; ranks that die because we
// signalled them do not change it. A stop that is requested while a restart was still possible ends
// the job with 128 + the signal.
//
// In a multi-node job the leader decides when an attempt begins and whether there is another:
//
//   waiting --(RoundStarted)--> running
//   running --(as above, or RoundStopRequested)--> stopping --> sweeping --> assessing
//   assessing, waiting --(RoundStarted)--> running; --(JobFinished)--> done
//   assessing, waiting --(a stop is requested)--> leaving; so does sweeping after such a stop
//   leaving --(JobFinished)--> done
class Supervisor {
 public:
  explicit Supervisor(int ranks, bool multi_node = false)
      : running_(static_cast<size_t>(ranks), false), multi_node_(multi_node) {}

  std::vector<Action> start();
  std::vector<Action> handle(const Event& event);

  // The rank that failed first in this attempt, -1 if none did.
  int first_failed() const { return first_failed_; }
  // The rank that failed while the ranks of this attempt were stopping for another reason, -1 if
  // none did.
  int failed_while_stopping() const { return failed_while_stopping_; }
  // The exit status that the first failure stands for.
  int first_status() const { return first_report_.shell_status(); }
  // Whether the ranks were already signalled; ranks that exit afterwards exit because of that.
  bool stopping() const { return state_ != State::running; }
  // Whether AssessFailure was not answered yet.
  bool assessing() const { return state_ == State::assessing; }
  Signal stop_signal() const { return stop_signal_; }
  int attempt() const { return attempt_; }
  // Whether the ranks of this attempt were signalled to stop.
  bool was_stopped() const { return stopped_; }
  bool done() const { return state_ == State::done; }
  // What a single-node job is doing, for people.
  std::string_view phase() const;
  // Whether ranks may be alive.
  bool active() const {
    return state_ == State::running || state_ == State::stopping || state_ == State::sweeping;
  }

 private:
  enum class State { running, stopping, sweeping, assessing, leaving, waiting, done };
  using Actions = std::vector<Action>;

  Actions on(const RankExited& event);
  Actions on(const HangFound& event);
  Actions on(const StopRequested& event);
  Actions on(const KillRequested&);
  Actions on(const GraceExpired&);
  Actions on(const TreeEmpty&);
  Actions on(const FailureAssessed& event);
  Actions on(const DelayExpired&);
  Actions on(const RoundStarted& event);
  Actions on(const RoundStopRequested& event);
  Actions on(const JobFinished& event);

  Actions begin_attempt();
  Actions stop_ranks(Signal signal);
  Actions abort_ranks();
  Actions kill_all();
  template <class Stop>
  Actions stop_running(Signal signal, bool after_failure, Stop stop);
  Actions leave_job();
  Actions finish(int status);
  bool none_running() const;
  bool is_result_of_stop(const ExitReport& report) const;

  State state_ = State::waiting;
  std::vector<bool> running_;
  bool multi_node_;
  int final_status_ = -1;  // of a job that has finished while ranks still run here; -1: not set
  int attempt_ = -1;
  int replacements_ = 0;  // in this attempt
  int first_failed_ = -1;
  int failed_while_stopping_ = -1;
  ExitReport first_report_;
  Signal stop_signal_;
  bool grace_started_ = false;
  bool stopped_ = false;
  bool aborting_ = false;             // the ranks of this attempt, after a failure
  std::vector<Signal> sent_signals_;  // that the ranks of this attempt got, in order
};

}  // namespace mgpu::launcher
