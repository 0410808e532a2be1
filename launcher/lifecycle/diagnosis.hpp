#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/lifecycle/error_file.hpp"
#include "launcher/lifecycle/exit_report.hpp"
#include "launcher/lifecycle/memory_text.hpp"

namespace mgpu::launcher {

// Why a rank failed, as far as it can be determined.
struct Cause {
  enum class Kind {
    none,
    exec_failure,  // the program could not be started
    usage,         // the program rejected its arguments
    import_error,
    syntax_error,
    python_exception,
    host_oom,        // the kernel counted an OOM kill
    host_oom_guess,  // a SIGKILL that mgpu-run did not send
    gpu_oom,
    gpu_error,  // of the GPU, its driver or its links; not one that the program causes
    signal,
    exit_status,
  };
  Kind kind = Kind::none;
  std::string text;    // one line for the user
  std::string advice;  // what to do, may be empty
};

// The name used in reports and messages, such as "host_oom".
std::string_view name_of(Cause::Kind kind);
// The inverse of name_of; none for an unknown name.
Cause::Kind kind_named(std::string_view name);

// False for causes that a restart does not fix: exec failure, usage, import and syntax errors.
bool is_retryable(Cause::Kind kind);

// True for causes that belong to the node: a GPU error, host memory that ran out, a program that
// cannot be started. Not for exceptions and exit statuses, which belong to the program, nor for
// guesses.
bool belongs_to_node(Cause::Kind kind);

// Whether MGPU_OOM_COUNT counts an attempt with this cause: the trainer then halves its
// micro-batch. Not for host memory, which a smaller micro-batch hardly changes, and not for a
// guess.
bool counts_as_oom(Cause::Kind kind);

// Host memory at the time a rank exited. Zero: unknown.
struct MemoryFacts {
  std::uint64_t oom_kills = 0;        // kernel OOM kills in our cgroup since the attempt began
  std::string cgroup;                 // in which they were counted
  std::uint64_t limit_bytes = 0;      // of that cgroup
  std::uint64_t peak_bytes = 0;       // of that cgroup
  std::uint64_t rank_peak_bytes = 0;  // largest resident size of the rank's own process
  std::uint64_t host_bytes = 0;       // memory of the machine
  int children = 0;                   // that the rank had when it was last observed
  std::uint64_t children_bytes = 0;   // and what they held
  std::int64_t bytes_per_minute = 0;  // by which the rank grew before
  std::string victim;                 // the process that the kernel killed, from its log
  // What the rank held when mgpu-run killed it because of --worker-memory; 0: it did not.
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
};

// Determines the cause of a failure. A pure function.
Cause diagnose(const FailureEvidence& evidence);

}  // namespace mgpu::launcher
