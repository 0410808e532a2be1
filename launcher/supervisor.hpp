#pragma once

#include <chrono>
#include <variant>
#include <vector>

#include "launcher/exit_report.hpp"
#include "launcher/restart_policy.hpp"

namespace mgpu::launcher {

// What happens to a job, as the event loop sees it.
struct RankEnded {
  int rank;
  ExitReport report;
};
struct StopRequested {
  int signo;
};                        // we are told to end
struct KillRequested {};  // and now at once
struct GraceExpired {};
struct TreeEmpty {};  // nothing that the ranks started is alive
struct Judged {
  Decision decision;
};  // the restart policy's answer to Judge
struct DelayExpired {};
using Event = std::variant<RankEnded, StopRequested, KillRequested, GraceExpired, TreeEmpty, Judged,
                           DelayExpired>;

// What is to be done about it.
struct StartRanks {
  int attempt;
  friend bool operator==(const StartRanks&, const StartRanks&) = default;
};
struct SignalRank {
  int rank, signo;
  friend bool operator==(const SignalRank&, const SignalRank&) = default;
};
struct StartGrace {
  friend bool operator==(const StartGrace&, const StartGrace&) = default;
};
struct KillAll {  // every rank and everything that came of them, with SIGKILL
  friend bool operator==(const KillAll&, const KillAll&) = default;
};
struct Sweep {  // end what the ranks left behind; answer with TreeEmpty
  friend bool operator==(const Sweep&, const Sweep&) = default;
};
struct Judge {  // find the cause of first_failed()'s end, ask the policy, answer with Judged
  friend bool operator==(const Judge&, const Judge&) = default;
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
    std::variant<StartRanks, SignalRank, StartGrace, KillAll, Sweep, Judge, StartDelay, Finish>;

// Decides what happens to a group of ranks. It does no I/O and reads no clock: the event loop
// feeds it events and carries out the actions it returns.
//
//   running --(all end well)--------------------------> sweeping --> done
//   running --(a rank fails, or we are told to stop)--> stopping --> sweeping --> judging
//   judging --> running again (perhaps after waiting) or done
//
// The first failure of the last attempt names the job's exit status; ranks that die because we
// signalled them do not change it. Being told to stop while a restart was still possible ends
// the job with 128 + the signal.
class Supervisor {
 public:
  explicit Supervisor(int ranks) : running_(static_cast<size_t>(ranks), false) {}

  std::vector<Action> start();
  std::vector<Action> handle(const Event& event);

  // The rank that failed first in this attempt, -1 if none did.
  int first_failed() const { return first_failed_; }
  // Whether we had already signalled the ranks; who ends from then on ends because of us.
  bool stopping() const { return state_ != State::running; }
  int stop_signal() const { return stop_signal_; }
  int attempt() const { return attempt_; }

 private:
  enum class State { running, stopping, sweeping, judging, waiting, done };
  using Actions = std::vector<Action>;

  Actions on(const RankEnded& event);
  Actions on(const StopRequested& event);
  Actions on(const KillRequested&);
  Actions on(const GraceExpired&);
  Actions on(const TreeEmpty&);
  Actions on(const Judged& event);
  Actions on(const DelayExpired&);

  Actions begin_attempt();
  Actions stop_ranks(int signo);
  Actions finish(int status);
  bool none_running() const;

  State state_ = State::waiting;
  std::vector<bool> running_;
  int attempt_ = -1;
  int first_failed_ = -1;
  ExitReport first_report_;
  int stop_signal_ = 0;
  bool grace_started_ = false;
};

}  // namespace mgpu::launcher
