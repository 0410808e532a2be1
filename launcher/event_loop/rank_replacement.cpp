#include "launcher/event_loop/rank_replacement.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace mgpu::launcher {

using std::chrono::milliseconds;

RankReplacement::RankReplacement(PausableTimer& limit, const Options& options, const JobPlan& plan,
                                 WorkerSocket& workers, const RankGroup& ranks, Journal& journal,
                                 std::function<bool(int)> too_late)
    : limit_(limit),
      options_(options),
      plan_(plan),
      workers_(workers),
      ranks_(ranks),
      journal_(journal),
      too_late_(std::move(too_late)) {
  workers_.on_ready([this] {
    limit_.cancel();
    if (!start_) start_ = journal_.since_attempt();
  });
}

void RankReplacement::begin_attempt() {
  limit_.cancel();
  start_.reset();
  late_.clear();
}

bool RankReplacement::offered() const {
  return options_.replace_ranks && !plan_.rendezvous_plan && !options_.rank0_store &&
         ranks_.size() > 1;
}

bool RankReplacement::possible(int local_rank, const ExitReport& report) {
  if (!offered() || !report.signal || !workers_.can_replace(global(local_rank))) return false;
  for (int other = 0; other < ranks_.size(); ++other)
    if (other != local_rank && !ranks_.running(other)) return false;
  return true;
}

bool RankReplacement::permitted(const Cause& cause) {
  if (!permits_replacement(cause.kind) || cause.cascade) return false;
  auto failures = journal_.failed_attempts();
  failures.push_back({.cause = cause.kind,
                      .lasted = journal_.since_attempt(),
                      .last_step = workers_.last_step(),
                      .certain = cause.certain,
                      .text = cause.text});
  const auto decision = decide_restart(failures, {options_.max_restarts, options_.retry_delay,
                                                  options_.restarts_renewed, options_.on_failure});
  cause_ = cause;
  return decision.restart && decision.policy != FailurePolicy::restart_changed &&
         decision.policy != FailurePolicy::exclude_node;
}

// A new process may need the time that the ranks needed at the start of the attempt.
milliseconds RankReplacement::limit() const {
  constexpr int kStartingRanks = 10;  // as for the first steps of a rank, see HangWatch
  constexpr milliseconds kLeast{60'000};
  if (options_.hang_timeout.value_or(milliseconds(0)) > milliseconds(0))
    return kStartingRanks * *options_.hang_timeout;
  return std::max(kLeast, 2 * start_.value_or(kLeast));
}

void RankReplacement::begin(int local_rank, int number) {
  const auto limit = this->limit();
  journal_.rank_replaced(local_rank, workers_.last_step(), std::move(cause_));
  workers_.replace(global(local_rank), number);
  limit_.start(limit, [this, local_rank, limit] {
    if (!too_late_(local_rank)) return;
    late_ =
        fmt::format("rank {} was replaced, and the ranks were not ready to go on within {:.1f} s",
                    global(local_rank), double(limit.count()) / 1000);
  });
}

}  // namespace mgpu::launcher
