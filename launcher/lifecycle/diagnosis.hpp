#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/lifecycle/error_file.hpp"
#include "launcher/lifecycle/exit_report.hpp"

namespace mgpu::launcher {

// Why a rank ended, as far as it can be known.
struct Cause {
  enum class Kind {
    none,
    exec_failure,  // the program could not be started
    usage,         // the program did not like its arguments
    import_error,
    syntax_error,
    python_exception,
    host_oom,        // the kernel said so
    host_oom_guess,  // SIGKILL that nobody here sent
    gpu_oom,
    signal,
    exit_status,
  };
  Kind kind = Kind::none;
  std::string text;    // one line for people
  std::string advice;  // what to do about it, may be empty
};

// A word for reports and events, such as "host_oom".
std::string_view name_of(Cause::Kind kind);
// The other way; none for a word that is no such name.
Cause::Kind kind_named(std::string_view name);

// False for what will be the same at the next try: exec failure, usage, import and syntax errors.
bool is_retryable(Cause::Kind kind);

bool is_oom(Cause::Kind kind);

// What is known of host memory around a rank's end. Zero: not known.
struct MemoryFacts {
  std::uint64_t oom_kills = 0;        // kernel OOM kills in our cgroup since the attempt began
  std::string cgroup;                 // where they were counted
  std::uint64_t limit_bytes = 0;      // of that cgroup
  std::uint64_t peak_bytes = 0;       // of that cgroup
  std::uint64_t rank_peak_bytes = 0;  // largest resident size of the rank's own process
  std::uint64_t host_bytes = 0;       // memory of the machine
};

// What is left of a rank to judge from.
struct FailureEvidence {
  ExitReport report;
  std::optional<ErrorFile> error_file;
  std::string_view stderr_tail;
  MemoryFacts memory;
};

// Pure: from what is left of a rank to the cause of its end.
Cause diagnose(const FailureEvidence& evidence);

}  // namespace mgpu::launcher
