#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {

// What a rank reports about its progress.
struct Heartbeat {
  int rank = 0;
  std::optional<std::int64_t> step = {};  // the number of completed steps
  // What it does from now on: kTrainingPhase, or something that takes longer than a step.
  std::optional<std::string> phase = {};
  // The time that it needed for its own part of a step, without waiting for other ranks.
  std::optional<double> busy_ms = {};
};

inline constexpr const char* kTrainingPhase = "training";

// Whether the text can be the name of a phase: a word of at most 64 letters, digits and _-.
bool is_phase(std::string_view text);

// A job in which no rank makes progress.
struct Hang {
  enum class Evidence { suspended, behind, other_phase, none };

  std::string host = {};                      // where the ranks are; empty: the job has one node
  int rank = 0;                               // the odd one out
  Evidence why = {};                          // by which it was found; none: all ranks look alike
  std::vector<int> like;                      // all ranks of which the same is true
  std::int64_t step = -1, highest_step = -1;  // of `rank`, and of all; -1: none reported
  std::string phase;                          // of `rank`
  std::chrono::milliseconds lasted{0}, limit{0};
  bool learned = false;  // the limit follows from earlier steps
  // What no rank did, such as "wrote output"; empty: none reported progress.
  std::string activity = {};
  std::string reason;    // why it is this rank, from the evidence; empty: see `why`
  std::string evidence;  // the folder with the evidence about all ranks; empty: there is none

  friend bool operator==(const Hang&, const Hang&) = default;
};

// The cause of the failure that ends a hang.
Cause cause_of(const Hang& hang);

// Detects that a job hangs, from what its ranks report. All ranks wait for the slowest one in
// collectives, so a job hangs when none of its ranks makes progress; as long as any does, the
// others are only slow. Reads no clock: times are those of the caller, from any fixed point, and
// must not include times in which the ranks could not run.
//
// The limit is learned from the job's own steps and phases, unless it is fixed. It is generous,
// because a false alarm destroys work and a late one only costs time:
//
//   what the slowest rank does              learned limit             fixed limit
//   training, after 3 steps of the attempt  20 mean or 3 longest, at  the limit
//                                           least 30 min (5 min if
//                                           the job names phases)
//   a phase that was completed before       5 longest, at least 30 m  10 limits
//   anything else                           none                      10 limits
//
// Only ranks that have reported something are watched. What was learned survives restarts.
class HangWatch {
 public:
  using Time = std::chrono::milliseconds;

  // How much later than the limit a hang is found if no rank of this node stands out and the job
  // has other nodes.
  static Time patience(Time limit);

  // No limit: learn it. 0: never find a hang.
  explicit HangWatch(std::optional<Time> fixed_limit) : fixed_(fixed_limit) {}

  // All ranks start again. `host`: the name of this node if some of the job's ranks report to the
  // launcher of another one, else empty. Then a hang in which no rank stands out is found later, so
  // that the launcher of a rank that stands out reports it first.
  void begin_attempt(const std::string& host);
  void record(const Heartbeat& heartbeat, Time now);
  // A new process has taken the rank's place, and the others wait until it is ready: they all start
  // again.
  void rank_replaced(int rank, Time now);
  // The rank has exited or does not report any more.
  void forget(int rank) { ranks_.erase(rank); }

  bool reported() const { return !ranks_.empty(); }
  bool watching() const { return fixed_ != Time(0) && !ranks_.empty(); }
  // For the slowest of the ranks; nothing: no limit. If one of them is suspended, no rank gets more
  // time than for a step: the others wait for it.
  std::optional<Time> limit(bool suspended = false) const;
  // Whether no rank has made progress for the limit. Then find() has the answer, or soon will.
  bool overdue(Time now, bool suspended = false) const;
  // `suspended`: the ranks that a signal or a debugger has suspended.
  std::optional<Hang> find(Time now, const std::vector<int>& suspended) const;

 private:
  struct Rank {
    Time since{0};  // its last progress
    std::int64_t step = -1;
    std::int64_t first_step = -1;  // that it reported in this attempt
    std::string phase = kTrainingPhase;
  };
  struct Durations {
    int count = 0;
    Time total{0}, longest{0};
  };

  void learn(const Rank& rank, Time duration);
  std::optional<Time> limit_of(const Rank& rank) const;
  std::optional<Time> limit_of_a_step() const;
  bool in_first_steps(const Rank& rank) const;
  void find_odd_rank(const std::vector<int>& suspended, Hang& hang) const;

  std::optional<Time> fixed_;
  std::string host_;
  bool names_phases_ = false;
  std::map<int, Rank> ranks_;
  std::map<std::string, Durations> learned_;  // by phase
};

}  // namespace mgpu::launcher
