#pragma once

#include <string_view>
#include <vector>

namespace mgpu::launcher {

// What kind of failure a rank had. The names are an interface: reports, agents of other nodes and
// scripts read them, so a kind is never renamed.
enum class FailureKind {
  none,
  // The program cannot start.
  exec_failure,  // it could not be executed
  usage,         // it rejected its arguments
  import_error,
  syntax_error,
  // Memory and disks.
  host_oom,        // the host or a memory limit had no more memory
  host_oom_guess,  // a SIGKILL that mgpu-run did not send, of a rank that may have used too much
  gpu_oom,
  disk_full,
  // GPUs and communication.
  gpu_error,   // of the GPU, its driver or its links (Xid, ECC, NVLink), not caused by the program
  cuda_error,  // that a program can cause, such as an illegal memory access
  nccl_error,  // of the communication library itself, its network or its configuration
  peer_failure,  // a cascade: another rank vanished or did not answer
  hang,          // no progress
  lost_node,
  // The program and what it reads.
  data_error,  // a malformed or missing record, file or shard
  nan,         // the loss or a gradient is not a number
  python_exception,
  // Signals.
  preempted,  // the scheduler ended the job or the node
  killed,     // a signal from outside, sent by a person or another program
  signal,     // a crash, such as SIGSEGV
  // Only the exit status is known.
  exit_status,
};

// The name used in reports and messages, such as "host_oom".
std::string_view name_of(FailureKind kind);
// The inverse of name_of; none for an unknown name.
FailureKind kind_named(std::string_view name);
// All names except "none".
std::vector<std::string_view> failure_kind_names();

// False for causes that a restart does not fix: exec failure, usage, import and syntax errors.
bool is_retryable(FailureKind kind);

// True for causes that belong to the node: a GPU error, host memory that ran out, a program that
// cannot be started. Not for exceptions and exit statuses, which belong to the program, nor for
// guesses.
bool belongs_to_node(FailureKind kind);

// Whether a new process can take the place of a rank that a signal has ended for this reason, while
// the other ranks go on. A lack of memory, a broken GPU or an error of the program needs more.
bool permits_replacement(FailureKind kind);

// Whether MGPU_OOM_COUNT counts an attempt with this cause, so that the next attempt uses less GPU
// memory. Not for host memory, which these changes hardly reduce, and not for a guess.
bool counts_as_oom(FailureKind kind);

}  // namespace mgpu::launcher
