#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/lifecycle/hang_watch.hpp"

namespace mgpu::launcher {

// What counts as activity of a rank.
struct ActivitySigns {
  bool output = false;  // it has written something
  bool cpu = false;     // its processes have used at least 5 % of a core
  bool gpu = false;     // a GPU of this node was in use

  bool any() const { return output || cpu || gpu; }
};

// What the ranks of this node have done since they started.
struct ActivitySample {
  struct Rank {
    int rank = 0;
    std::uint64_t output_bytes = 0;
    std::chrono::milliseconds cpu{0};
  };
  std::vector<Rank> ranks;
  int gpu_percent = -1;  // of the busiest GPU, when it was read last; -1: unknown
};

// Detects that the ranks of a program that reports no steps do nothing. Like HangWatch it reads no
// clock, and finds a hang only if no rank of the job is active for the limit. A GPU whose use is
// unknown counts as in use if nothing else counts.
class ActivityWatch {
 public:
  using Time = HangWatch::Time;

  // Without signs, or without a limit, it never finds a hang.
  ActivityWatch(ActivitySigns signs, std::optional<Time> limit);

  bool enabled() const { return enabled_; }
  // `host`: see HangWatch.
  void begin_attempt(const std::string& host, Time now);
  void record(const ActivitySample& sample, Time now);
  // How long no rank of the whole job has been active, as the leader reports it.
  void set_job_idle(Time idle) { job_idle_ = idle; }

  // How long no rank of this node has been active.
  Time idle(Time now) const;
  bool overdue(Time now) const;
  // `suspended`: see HangWatch.
  std::optional<Hang> find(Time now, const std::vector<int>& suspended) const;

 private:
  struct Rank {
    std::uint64_t output_bytes = 0;
    Time cpu{0};
    Time active{0};  // when it was last
  };

  ActivitySigns signs_;
  Time limit_;
  bool enabled_;
  std::string host_;
  std::map<int, Rank> ranks_;
  Time rank_active_{0};  // when any rank was last, also one that has exited
  Time began_{0}, sampled_{0}, gpu_active_{0}, job_idle_{0};
};

}  // namespace mgpu::launcher
