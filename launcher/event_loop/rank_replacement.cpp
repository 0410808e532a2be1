#include "launcher/event_loop/rank_replacement.hpp"

#include <fmt/format.h>

namespace mgpu::launcher {

bool RankReplacement::offered() const {
  return options_.replace_ranks && !plan_.rendezvous_plan && !options_.rank0_store &&
         ranks_.size() > 1;
}

bool RankReplacement::possible(int local_rank, const ExitReport& report) {
  if (!offered() || !report.signal || !workers_.can_replace(global(local_rank))) return false;
  for (int other = 0; other < ranks_.size(); ++other)
    if (other != local_rank && !ranks_.running(other)) return false;
  auto failures = journal_.failed_attempts();
  failures.push_back({.cause = Cause::Kind::signal,
                      .lasted = journal_.since_attempt(),
                      .last_step = workers_.last_step()});
  return decide_restart(failures,
                        {options_.max_restarts, options_.retry_delay, options_.restarts_renewed})
      .restart;
}

void RankReplacement::begin(int local_rank, int number) {
  journal_.rank_replaced(local_rank, workers_.last_step());
  workers_.replace(global(local_rank), number);
}

}  // namespace mgpu::launcher
