#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/lifecycle/error_file.hpp"
#include "launcher/lifecycle/exit_report.hpp"
#include "launcher/lifecycle/failure_kind.hpp"
#include "launcher/lifecycle/memory_text.hpp"

namespace mgpu::launcher {

// Why a rank failed, as far as it can be determined.
struct Cause {
  using Kind = FailureKind;
  Kind kind = Kind::none;
  std::string text;            // one line for the user
  std::string advice;          // what to do, may be empty
  std::string signature = {};  // the name of the entry that matched (see signatures.hpp), or empty
  std::string evidence = {};   // the line that decided; empty: the exit status or a signal did
  bool cascade = false;        // a consequence of what happened to another rank
  bool certain = false;        // a restart fails in the same way
};

// Host memory at the time a rank exited. Zero: unknown.
struct MemoryFacts {
  std::uint64_t oom_kills = 0;        // kernel OOM kills in our cgroup since the attempt began
  bool oom_kills_known = false;       // the kernel's counter could be read, so that 0 is a fact
  std::string cgroup;                 // in which they were counted
  std::uint64_t limit_bytes = 0;      // of that cgroup
  std::uint64_t peak_bytes = 0;       // of that cgroup
  std::uint64_t rank_peak_bytes = 0;  // largest resident size of the rank's own process
  std::uint64_t host_bytes = 0;       // memory of the machine
  int children = 0;                   // that the rank had when it was last observed
  std::uint64_t children_bytes = 0;   // and what they used
  std::int64_t bytes_per_minute = 0;  // by which the rank grew before
  std::string victim;                 // the process that the kernel killed, from its log
  // What the rank used when mgpu-run killed it because of --worker-memory; 0: it did not.
  std::uint64_t killed_at_bytes = 0;
  std::uint64_t rank_limit_bytes = 0;  // --worker-memory, if mgpu-run enforces it
};

// Everything that a failed rank left for the diagnosis.
struct FailureEvidence {
  ExitReport report;
  std::optional<ErrorFile> error_file;
  std::string_view stderr_tail;
  MemoryFacts memory;
  std::string_view gpu_fault;  // an Xid that the kernel logged during the attempt; empty: none
  // The scheduler's job, such as "Slurm job 42", if mgpu-run itself was asked to stop; else empty.
  std::string_view stopped_by = {};
  std::chrono::seconds cpu_time{0};  // that the rank has used
  // The limits of CPU time that ranks inherit, in seconds; 0: none. At the soft one the kernel
  // sends SIGXCPU, at the hard one SIGKILL.
  std::uint64_t soft_cpu_limit = 0, hard_cpu_limit = 0;
};

// Determines the cause of a failure. A pure function.
Cause diagnose(const FailureEvidence& evidence);

}  // namespace mgpu::launcher
