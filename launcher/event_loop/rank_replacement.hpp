#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launcher/event_loop/journal.hpp"
#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/ranks/pausable_timer.hpp"
#include "launcher/ranks/rank_group.hpp"
#include "launcher/ranks/worker_socket.hpp"

namespace mgpu::launcher {

// Replaces killed ranks of a single-node job while the others keep their processes
// (--replace-ranks): knows when that is possible, tells the others and the user, and notices when
// it takes too long.
class RankReplacement {
 public:
  // `too_late` is called when the ranks are not ready again in time, with the rank that was
  // replaced; it returns false if the attempt has ended otherwise. `limit` is the timer for that;
  // while the job is suspended, the caller pauses it.
  RankReplacement(PausableTimer& limit, const Options& options, const JobPlan& plan,
                  WorkerSocket& workers, const RankGroup& ranks, Journal& journal,
                  std::function<bool(int local_rank)> too_late);
  RankReplacement(const RankReplacement&) = delete;
  RankReplacement& operator=(const RankReplacement&) = delete;

  void begin_attempt();
  // Whether ranks of this job can be replaced at all.
  bool offered() const;
  // Whether all others run and can go on after the end of this rank.
  bool possible(int local_rank, const ExitReport& report);
  // Whether a rank that ended by this cause may be replaced: what caused it needs no other remedy,
  // no policy forbids it, and a restart is left. The rank's exit is the journal's last one.
  bool permitted(const Cause& cause);
  // A new process is about to take the place of the rank that was permitted last.
  void begin(int local_rank, int number);

  // Why this attempt failed, if a replacement took too long; else empty.
  const std::string& late() const { return late_; }

 private:
  int global(int local_rank) const { return plan_.placement.base_rank + local_rank; }
  std::chrono::milliseconds limit() const;

  PausableTimer& limit_;
  const Options& options_;
  const JobPlan& plan_;
  WorkerSocket& workers_;
  const RankGroup& ranks_;
  Journal& journal_;
  std::function<bool(int)> too_late_;
  std::optional<std::chrono::milliseconds> start_;  // until all ranks were ready for the first time
  Cause cause_;
  std::string late_;
};

}  // namespace mgpu::launcher
