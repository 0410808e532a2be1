#pragma once

#include <string>

#include "launcher/lifecycle/report.hpp"

namespace mgpu::launcher {

// What a failed rank left, and the memory at that time.
struct FailureTraces {
  std::string log_dir;  // of the rank, where its error file is; empty: none
  std::string stderr_tail;
  MemoryFacts memory;
  bool python = false;    // the rank ran a Python program
  std::string gpu_fault;  // an Xid that the kernel logged during the attempt; empty: none
};

// Completes the result of an attempt in which `local_rank` failed first: which rank that was, what
// it left, and the cause. For a Python program that has printed an exception but written no error
// file, as without torch's @record, this function writes the file.
void describe_first_failure(AttemptResult& attempt, int local_rank, FailureTraces traces);

}  // namespace mgpu::launcher
