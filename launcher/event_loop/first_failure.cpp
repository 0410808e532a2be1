#include "launcher/event_loop/first_failure.hpp"

#include <ctime>
#include <utility>

#include "launcher/event_loop/write_file.hpp"

namespace mgpu::launcher {

void describe_first_failure(AttemptResult& attempt, int local_rank, FailureTraces traces) {
  for (const auto& rank : attempt.ranks)
    if (rank.local_rank == local_rank) attempt.first_failure = rank;
  attempt.log_dir = std::move(traces.log_dir);
  attempt.stderr_tail = std::move(traces.stderr_tail);
  const std::string error_path = attempt.log_dir.empty() ? "" : attempt.log_dir + "/error.json";
  if (!error_path.empty()) attempt.error_file = read_error_file(error_path);

  traces.memory.rank_peak_bytes = attempt.first_failure->peak_bytes;
  attempt.cause = diagnose({.report = attempt.first_failure->report,
                            .error_file = attempt.error_file,
                            .stderr_tail = attempt.stderr_tail,
                            .memory = std::move(traces.memory),
                            .gpu_fault = traces.gpu_fault});

  if (attempt.error_file || error_path.empty() || !traces.python) return;
  if (auto found = python_exception_in(attempt.stderr_tail)) {
    found->timestamp = std::time(nullptr);
    write_file(error_path, to_json(*found));
    attempt.error_file = std::move(found);
  }
}

}  // namespace mgpu::launcher
