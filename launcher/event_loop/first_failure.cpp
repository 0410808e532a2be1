#include "launcher/event_loop/first_failure.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/printable.hpp"

namespace mgpu::launcher {
namespace {

// What mgpu-train, torch, gloo and NCCL print when a collective does not finish.
bool waited_for_others(std::string_view text) {
  return std::ranges::any_of(
      std::array{"timed out", "Timed out", "timeout", "Timeout", "did not finish within"},
      [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

RankResult* result_of(AttemptResult& attempt, int local_rank) {
  const auto found = std::ranges::find(attempt.ranks, local_rank, &RankResult::local_rank);
  return found == attempt.ranks.end() ? nullptr : &*found;
}

// The rank that failed first only gave up waiting for a rank that was suspended.
void blame_suspended(AttemptResult& attempt, int local_rank) {
  const auto* suspended = result_of(attempt, local_rank);
  if (!suspended) return;
  const int gave_up = attempt.first_failure->rank;
  const auto own = attempt.cause.text;
  attempt.first_failure = *suspended;
  attempt.cause = cause_of({.why = Hang::Evidence::suspended, .like = {suspended->rank}});
  attempt.cause.text = rendezvous::printable(
      fmt::format("hang: rank {} was suspended by a signal or a debugger; rank {} gave up waiting: "
                  "{}",
                  suspended->rank, gave_up, own));
}

}  // namespace

std::string error_file_path(const std::string& log_dir) {
  return log_dir.empty() ? std::string() : log_dir + "/error.json";
}

bool describe_first_failure(AttemptResult& attempt, int local_rank, FailureTraces traces) {
  for (const auto& rank : attempt.ranks)
    if (rank.local_rank == local_rank) attempt.first_failure = rank;
  attempt.log_dir = std::move(traces.log_dir);
  attempt.stderr_tail = std::move(traces.stderr_tail);
  attempt.error_file = std::move(traces.error_file);

  traces.memory.rank_peak_bytes = attempt.first_failure->peak_bytes;
  attempt.cause = diagnose({.report = attempt.first_failure->report,
                            .error_file = attempt.error_file,
                            .stderr_tail = attempt.stderr_tail,
                            .memory = std::move(traces.memory),
                            .gpu_fault = traces.gpu_fault});
  if (!traces.start_problem.empty())
    attempt.cause.text = rendezvous::printable(traces.start_problem);
  if (traces.hang) {
    attempt.cause = cause_of(*traces.hang);
    attempt.evidence = std::move(traces.hang->evidence);
  } else if (!traces.suspended.empty() &&
             (waited_for_others(attempt.cause.text) || waited_for_others(attempt.stderr_tail))) {
    blame_suspended(attempt, traces.suspended.front());
  }

  if (attempt.error_file || attempt.log_dir.empty() || !traces.python) return false;
  auto found = python_exception_in(attempt.stderr_tail);
  if (!found) return false;
  found->timestamp = std::time(nullptr);
  attempt.error_file = std::move(found);
  return true;
}

}  // namespace mgpu::launcher
