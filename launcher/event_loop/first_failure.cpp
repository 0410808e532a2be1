#include "launcher/event_loop/first_failure.hpp"

#include <algorithm>
#include <ctime>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "launcher/lifecycle/suspended_rank.hpp"
#include "rendezvous/base/printable.hpp"

namespace mgpu::launcher {
namespace {

// Of the rank's last process: earlier ones were replaced.
const RankResult* result_of(const AttemptResult& attempt, int local_rank) {
  const auto found = std::ranges::find(attempt.ranks.rbegin(), attempt.ranks.rend(), local_rank,
                                       &RankResult::local_rank);
  return found == attempt.ranks.rend() ? nullptr : &*found;
}

// Without the numbers of memory, which do not show which of several ranks failed. Neither does the
// exit of a rank that mgpu-run stopped, but its output does.
Cause cause_in_text(const RankResult& rank, std::string_view stderr_tail) {
  const auto report = rank.ended_by_us ? ExitReport{.code = 1} : rank.report;
  return diagnose({.report = report, .stderr_tail = stderr_tail});
}

bool is_root(const RankResult& rank, const Cause& cause) {
  using enum FailureKind;
  if (rank.report.clean() || rank.replaced_after || cause.cascade || cause.kind == none)
    return false;
  if (!rank.ended_by_us) return true;
  // A rank that is being stopped can print anything, but rarely one of these.
  return cause.kind != exit_status && cause.kind != signal && cause.kind != killed &&
         cause.kind != preempted;
}

}  // namespace

int rank_with_cause(const AttemptResult& attempt, int failed,
                    const std::function<std::string(int local_rank)>& stderr_of) {
  const auto* first = result_of(attempt, failed);
  if (!first || !cause_in_text(*first, stderr_of(failed)).cascade) return failed;
  for (const bool ended_by_us : {false, true})
    for (const auto& rank : attempt.ranks)
      if (rank.ended_by_us == ended_by_us &&
          is_root(rank, cause_in_text(rank, stderr_of(rank.local_rank))))
        return rank.local_rank;
  return failed;
}

std::string error_file_path(const std::string& log_dir) {
  return log_dir.empty() ? std::string() : log_dir + "/error.json";
}

bool describe_first_failure(AttemptResult& attempt, int local_rank, FailureTraces traces) {
  attempt.first_failure = *result_of(attempt, local_rank);
  const auto* root = traces.local_rank < 0 ? nullptr : result_of(attempt, traces.local_rank);
  const bool elsewhere = root && root->local_rank != local_rank;
  if (!root) root = &*attempt.first_failure;
  attempt.root_rank = root->rank;
  attempt.log_dir = std::move(traces.log_dir);
  attempt.stderr_tail = std::move(traces.stderr_tail);
  attempt.error_file = std::move(traces.error_file);

  traces.memory.rank_peak_bytes = root->peak_bytes;
  attempt.cause = diagnose({.report = root->ended_by_us ? ExitReport{.code = 1} : root->report,
                            .error_file = attempt.error_file,
                            .stderr_tail = attempt.stderr_tail,
                            .memory = std::move(traces.memory),
                            .gpu_fault = traces.gpu_fault,
                            .stopped_by = traces.stopped_by,
                            .cpu_time = root->cpu_time,
                            .soft_cpu_limit = traces.soft_cpu_limit,
                            .hard_cpu_limit = traces.hard_cpu_limit});
  if (elsewhere)
    attempt.cause.text =
        fmt::format("a consequence of rank {}: {}", root->rank, attempt.cause.text);
  if (!traces.start_problem.empty())
    attempt.cause.text = rendezvous::printable(traces.start_problem);
  if (!traces.late_replacement.empty())
    attempt.cause = {Cause::Kind::hang, std::move(traces.late_replacement), {}};
  if (traces.hang) {
    attempt.cause = cause_of(*traces.hang);
    attempt.evidence = std::move(traces.hang->evidence);
  } else {
    blame_suspended(attempt);
  }

  if (attempt.error_file || attempt.log_dir.empty() || !traces.python) return false;
  auto found = python_exception_in(attempt.stderr_tail);
  if (!found) return false;
  found->timestamp = std::time(nullptr);
  attempt.error_file = std::move(found);
  return true;
}

}  // namespace mgpu::launcher
