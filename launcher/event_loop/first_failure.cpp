#include "launcher/event_loop/first_failure.hpp"

#include <ctime>
#include <utility>

#include "rendezvous/base/printable.hpp"

namespace mgpu::launcher {

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

  if (attempt.error_file || attempt.log_dir.empty() || !traces.python) return false;
  auto found = python_exception_in(attempt.stderr_tail);
  if (!found) return false;
  found->timestamp = std::time(nullptr);
  attempt.error_file = std::move(found);
  return true;
}

}  // namespace mgpu::launcher
