#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/lifecycle/hang_watch.hpp"
#include "launcher/lifecycle/report.hpp"

namespace mgpu::launcher {

// What a failed rank left, and the memory at that time.
struct FailureTraces {
  std::string log_dir;                  // of the rank, where its error file is; empty: none
  std::optional<ErrorFile> error_file;  // that the rank wrote
  std::string stderr_tail;
  MemoryFacts memory;
  bool python = false;          // the rank ran a Python program
  std::string start_problem;    // why the attempt could not be started; empty: it was
  std::string gpu_fault;        // an Xid that the kernel logged during the attempt; empty: none
  std::string stopped_by = {};  // the scheduler's job (see FailureEvidence::stopped_by)
  std::uint64_t soft_cpu_limit = 0, hard_cpu_limit = 0;  // (see FailureEvidence)
  int local_rank = -1;            // whose traces these are; -1: of the first one that failed
  std::optional<Hang> hang = {};  // that ended the attempt
  // Why the new process of a replaced rank came too late; empty: there was none.
  std::string late_replacement = {};
};

// The local rank that has the cause of an attempt in which `failed` failed first. That is another
// one if the first failure is a cascade and the other one's last words are not: the connections of
// a process break before it has exited, so its peers may fail first. `stderr_of` returns the end of
// a local rank's stderr.
int rank_with_cause(const AttemptResult& attempt, int failed,
                    const std::function<std::string(int local_rank)>& stderr_of);

// Completes the result of an attempt in which `local_rank` failed first: which rank that was, what
// the rank with the cause left, and the cause. A rank that timed out waiting for a suspended one is
// not the cause: then that one is. For a Python program that has printed an exception but written
// no error file, as without torch's @record, the attempt's error file is made from that; returns
// whether it has to be written to error_file_path(log_dir).
bool describe_first_failure(AttemptResult& attempt, int local_rank, FailureTraces traces);

// Empty if there is no log folder.
std::string error_file_path(const std::string& log_dir);

}  // namespace mgpu::launcher
