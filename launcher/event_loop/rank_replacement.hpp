#pragma once

#include "launcher/event_loop/journal.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/ranks/rank_group.hpp"
#include "launcher/ranks/worker_socket.hpp"

namespace mgpu::launcher {

// Replaces killed ranks of a single-node job while the others keep their processes
// (--replace-ranks): knows when that is possible, and tells the others and the user.
class RankReplacement {
 public:
  RankReplacement(const Options& options, const JobPlan& plan, WorkerSocket& workers,
                  const RankGroup& ranks, Journal& journal)
      : options_(options), plan_(plan), workers_(workers), ranks_(ranks), journal_(journal) {}

  // Whether ranks of this job can be replaced at all.
  bool offered() const;
  // Whether a new process may take the place of this rank, whose exit the journal has: a signal
  // ended it, a restart is left, and all others run and can go on.
  bool possible(int local_rank, const ExitReport& report);
  // A new process is about to take its place.
  void begin(int local_rank, int number);

 private:
  int global(int local_rank) const { return plan_.placement.base_rank + local_rank; }

  const Options& options_;
  const JobPlan& plan_;
  WorkerSocket& workers_;
  const RankGroup& ranks_;
  Journal& journal_;
};

}  // namespace mgpu::launcher
