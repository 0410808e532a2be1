#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/hang_watch.hpp"

namespace mgpu::launcher {

// A rank whose own work takes longer than that of the others, so that they wait for it.
struct Straggler {
  int rank = 0;
  double busy_ms = 0, others_ms = 0;  // per step; of the others the median

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// Whether the difference is more than noise.
bool is_slower(double busy_ms, double others_ms);

// The line for the user; `host` is where the rank runs.
std::string straggler_line(const Straggler& straggler, std::string_view host);

// The progress of a rank.
struct RankProgress {
  int rank = 0;
  std::int64_t step = -1;  // -1: none reported
  std::string phase;
  std::optional<double> step_ms = {};  // from one step to the next
  std::optional<double> busy_ms = {};  // its own work per step, without waiting
  std::optional<double> skew = {};     // busy_ms as a multiple of the median of the other ranks
  bool straggler = false;              // it has been slower for long

  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};

// Compares the times that ranks need for their own work, smoothed over their reports. It reads no
// clock: times are those of the caller, as for HangWatch.
class StepTimes {
 public:
  using Time = HangWatch::Time;

  void begin_attempt() { ranks_.clear(); }
  // A straggler is returned once per attempt, when it has been slower by a quarter or more in 20
  // reports in a row.
  std::optional<Straggler> record(const Heartbeat& heartbeat, Time now);
  void forget(int rank) { ranks_.erase(rank); }

  std::vector<RankProgress> progress() const;  // by rank

 private:
  struct Rank {
    std::int64_t step = -1;
    std::string phase = kTrainingPhase;
    std::optional<Time> stepped;  // when it reported `step`; empty: another phase came after it
    std::optional<double> step_ms;
    double busy_ms = 0;  // smoothed, as step_ms
    int reports = 0;     // with a time
    int slow = 0;        // of these, the last ones in a row in which it was slower
    bool named = false;
  };

  static void record_step(Rank& rank, std::int64_t step, Time now);
  // Nothing if too little is known.
  std::optional<double> median_without(int rank) const;

  std::map<int, Rank> ranks_;
};

}  // namespace mgpu::launcher
