#include "launcher/lifecycle/diagnosis.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <fmt/format.h>

#include "launcher/lifecycle/signatures.hpp"
#include "launcher/lifecycle/text_lines.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/signal_names.hpp"

namespace mgpu::launcher {
namespace {

std::string_view advice_for(Cause::Kind kind) {
  using enum Cause::Kind;
  switch (kind) {
    case gpu_oom:
      return "use less GPU memory: a smaller batch, shorter sequences, gradient checkpointing or "
             "more ranks";
    case gpu_error:
      return "check the node's GPUs, driver and kernel log (mgpu-run doctor, nvidia-smi -q, dmesg)";
    case host_oom:
    case host_oom_guess:
      return "use less host memory (fewer data-loader workers or ranks, smaller batches) or raise "
             "the memory limit";
    case disk_full:
      return "free space on the disk that the program writes to (df -h; in a container also "
             "/dev/shm), or raise the quota";
    case cuda_error:
      return "run once with CUDA_LAUNCH_BLOCKING=1 to see which operation fails";
    case nccl_error:
      return "run once with NCCL_DEBUG=INFO, and check the network with mgpu-run doctor";
    case peer_failure:
      return "another rank failed first or cannot be reached; see its output";
    case hang:
      return "another rank did not reach this operation; see its output";
    case nan:
      return "lower the learning rate or check the data of this step";
    case data_error:
      return "correct or remove the record or file";
    default:
      return {};
  }
}

// Whether nothing indicates an OOM kill: the kernel has counted none, and neither the rank nor its
// cgroup came near the limit.
bool had_enough_memory(const MemoryFacts& memory) {
  const auto limit = memory.limit_bytes != 0 ? memory.limit_bytes : memory.host_bytes;
  const bool cgroup_was_full =
      memory.limit_bytes != 0 && memory.peak_bytes > memory.limit_bytes / 10 * 9;
  return memory.oom_kills_known && memory.oom_kills == 0 && !cgroup_was_full &&
         memory.rank_peak_bytes < limit / 2;
}

Cause over_limit(const MemoryFacts& memory) {
  return {Cause::Kind::host_oom,
          fmt::format("host out of memory: this rank and its children used {}, more than "
                      "--worker-memory {}, so mgpu-run killed them; {}",
                      size_text(memory.killed_at_bytes), size_text(memory.rank_limit_bytes),
                      memory_numbers(memory)),
          std::string(advice_for(Cause::Kind::host_oom))};
}

constexpr std::string_view kRaiseCpuLimit =
    "start mgpu-run with a higher limit: ulimit -t unlimited, or where the limit is set "
    "(limits.conf, the service manager, the scheduler)";

// Whether the rank has used about as much CPU time as the limit of so many seconds permits; 0:
// none.
bool is_at_cpu_limit(std::chrono::seconds used, std::uint64_t limit) {
  constexpr std::uint64_t kInexact = 2;
  return limit != 0 && static_cast<std::uint64_t>(used.count()) + kInexact >= limit;
}

// SIGKILL, which nothing explains but the limit of CPU time.
Cause maybe_over_cpu_limit(std::uint64_t limit, std::string_view numbers) {
  return {Cause::Kind::killed,
          fmt::format("killed by SIGKILL, which mgpu-run did not send; the kernel sends it to a "
                      "rank that has used {} s of CPU time, the limit that ranks inherit (ulimit "
                      "-t {}){}{}",
                      limit, limit, numbers.empty() ? "" : "; ", numbers),
          std::string(kRaiseCpuLimit)};
}

Cause over_cpu_limit(std::uint64_t limit) {
  return {Cause::Kind::signal,
          fmt::format("killed by SIGXCPU: the rank has used {} s of CPU time, the limit that ranks "
                      "inherit (ulimit -t {})",
                      limit, limit),
          std::string(kRaiseCpuLimit)};
}

// `victim` is the process that the kernel killed, if it killed one.
Cause host_oom(const FailureEvidence& evidence, std::string_view victim) {
  const auto& memory = evidence.memory;
  const auto numbers = memory_numbers(memory);
  Cause cause;
  if (memory.killed_at_bytes != 0) return over_limit(memory);
  if (memory.oom_kills > 0) {
    cause.kind = Cause::Kind::host_oom;
    cause.text =
        fmt::format("host out of memory: the kernel's OOM killer killed {}{}{}{}", victim,
                    memory.cgroup.empty() ? "" : fmt::format(" (cgroup {})", memory.cgroup),
                    numbers.empty() ? "" : "; ", numbers);
  } else if (is_at_cpu_limit(evidence.cpu_time, evidence.hard_cpu_limit)) {
    return maybe_over_cpu_limit(evidence.hard_cpu_limit, numbers);
  } else if (had_enough_memory(memory)) {
    return {Cause::Kind::killed,
            fmt::format("killed by SIGKILL, which mgpu-run did not send; the kernel counted no "
                        "OOM kill, so a person or another program sent it; {}",
                        numbers),
            {}};
  } else {
    cause.kind = Cause::Kind::host_oom_guess;
    cause.text = fmt::format(
        "killed by SIGKILL, which mgpu-run did not send; the host may have "
        "run out of memory, see `dmesg`{}{}",
        numbers.empty() ? "" : "; ", numbers);
  }
  cause.advice = advice_for(cause.kind);
  return cause;
}

// Whether a failure can be the consequence of a GPU that the kernel has reported, which may also be
// one that another job uses.
bool may_come_from_gpu(const Cause& cause, std::string_view stderr_tail) {
  const auto mentions_gpu = [](std::string_view text) {
    return std::ranges::any_of(std::array{"CUDA", "cuda", "NCCL", "nccl"}, [&](const char* word) {
      return text.find(word) != std::string_view::npos;
    });
  };
  using enum Cause::Kind;
  switch (cause.kind) {
    case cuda_error:
    case nccl_error:
      return true;
    case python_exception:
      return mentions_gpu(cause.text);
    case peer_failure:
    case hang:
    case signal:
    case exit_status:
      return mentions_gpu(stderr_tail);
    default:
      return false;
  }
}

Cause xid_error(std::string_view xid, std::string_view failure) {
  return {.kind = Cause::Kind::gpu_error,
          .text = fmt::format("GPU error: {}; after that this rank failed: {}", xid, failure),
          .advice = std::string(advice_for(Cause::Kind::gpu_error)),
          .signature = "xid",
          .evidence = std::string(xid)};
}

// `failure` is what happened in one line.
Cause from_match(const SignatureMatch& match, std::string_view failure) {
  const Signature& signature = *match.signature;
  Cause cause{.kind = signature.kind,
              .text = std::string(failure),
              .advice = std::string(advice_for(signature.kind)),
              .signature = std::string(signature.name),
              .evidence = std::string(match.line),
              .cascade = signature.cascade,
              .certain = signature.certain};
  if (cause.kind == Cause::Kind::gpu_error) cause.text = fmt::format("GPU error: {}", match.line);
  if (cause.kind == Cause::Kind::gpu_oom)
    cause.text = fmt::format("GPU out of memory: {}", match.line);
  return cause;
}

Cause from_exception(std::string_view message, std::string_view callstack) {
  const auto first = first_line(message);
  if (const auto match = match_exception(message, callstack)) return from_match(*match, first);
  return {.kind = Cause::Kind::python_exception,
          .text = std::string(first),
          .advice = {},
          .evidence = std::string(first)};
}

// What argparse, click, CLI11, python itself and the trainer print before they exit with 2.
bool is_usage_message(std::string_view tail) {
  const auto lines = lines_of(tail);
  return std::ranges::any_of(lines,
                             [](std::string_view line) {
                               return line.starts_with("usage:") || line.starts_with("Usage:");
                             }) ||
         tail.find("can't open file") != std::string_view::npos ||
         last_line(tail).starts_with("mgpu-train: ");
}

Cause usage_error(std::string_view tail) {
  const auto last = last_line(tail);
  return {.kind = Cause::Kind::usage,
          .text = std::string(last),
          .advice = {},
          .signature = "usage",
          .evidence = std::string(last),
          .certain = tail.find("can't open file") == std::string_view::npos};
}

// Whether the rank ended because of a signal that people and programs send to end a process;
// crashes have other signals. A program that handles such a signal may save its work and exit with
// 128 + its number.
bool was_asked_to_end(const ExitReport& report) {
  if (std::ranges::any_of(std::array<Signal, 6>{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2},
                          [&](Signal request) { return report.signal == request; }))
    return true;
  return std::ranges::any_of(std::array<Signal, 3>{SIGTERM, SIGINT, SIGHUP},
                             [&](Signal request) { return report.code == request.shell_status(); });
}

Cause ended_by_request(const FailureEvidence& evidence) {
  const int code = evidence.report.code;
  const auto what = code == 0
                        ? describe(evidence.report)
                        : fmt::format("{}, the status after {}", describe(evidence.report),
                                      rendezvous::signal_name(code - exit_status::of_signal(0)));
  if (evidence.stopped_by.empty())
    return {Cause::Kind::killed, fmt::format("{}, which mgpu-run did not send", what), {}};
  return {Cause::Kind::preempted,
          fmt::format("{}, and mgpu-run was asked to stop: {} was cancelled or preempted, or has "
                      "reached its time limit",
                      what, evidence.stopped_by),
          {}};
}

Cause from_output(const FailureEvidence& evidence) {
  const ExitReport& report = evidence.report;
  const auto tail = evidence.stderr_tail;
  if (report.code == exit_status::kUsage && is_usage_message(tail)) return usage_error(tail);
  const auto match = match_output(tail);
  if (was_asked_to_end(report)) {
    const bool of_scheduler = match && (match->signature->kind == Cause::Kind::preempted ||
                                        match->signature->kind == Cause::Kind::lost_node);
    if (!of_scheduler) return ended_by_request(evidence);
  }
  if (match) return from_match(*match, fmt::format("{}: {}", describe(report), match->line));
  const auto last = last_line(tail);
  return {.kind = report.signal ? Cause::Kind::signal : Cause::Kind::exit_status,
          .text = last.empty() ? describe(report) : fmt::format("{}: {}", describe(report), last),
          .advice = {},
          .evidence = std::string(last)};
}

// What a child of the rank, such as a data loader, prints when the rank is gone.
bool is_lost_connection(std::string_view exception) {
  return std::ranges::any_of(
      std::array<std::string_view, 3>{"ConnectionResetError", "BrokenPipeError", "EOFError"},
      [&](std::string_view name) { return exception.starts_with(name); });
}

// The cause from the error file, else from stderr, else from the exit status.
Cause from_rank_output(const FailureEvidence& evidence) {
  const auto found = find_python_exception(evidence.stderr_tail);
  Cause cause;
  if (evidence.error_file)
    cause = from_exception(evidence.error_file->message, evidence.error_file->callstack);
  else if (found && !(evidence.report.signal && is_lost_connection(found->message)))
    cause = from_exception(found->message, found->error.callstack);
  else
    return from_output(evidence);
  if (cause.kind != Cause::Kind::python_exception && !cause.cascade) return cause;
  const auto begin = found ? found->begin : 0;
  const auto line = gpu_oom_before(evidence.stderr_tail, begin);
  return line.empty() ? cause : from_match({&signatures().front(), line}, line);
}

}  // namespace

namespace {

Cause find_cause(const FailureEvidence& evidence) {
  const ExitReport& report = evidence.report;
  if (report.exec_error != 0) return {Cause::Kind::exec_failure, describe(report), {}};
  if (report.clean()) return {};
  if (report.signal == SIGKILL) return host_oom(evidence, "this rank");
  if (report.signal == SIGXCPU && is_at_cpu_limit(evidence.cpu_time, evidence.soft_cpu_limit))
    return over_cpu_limit(evidence.soft_cpu_limit);

  Cause own = from_rank_output(evidence);
  if (!evidence.gpu_fault.empty() && may_come_from_gpu(own, evidence.stderr_tail))
    return xid_error(evidence.gpu_fault, own.text);
  if (evidence.memory.oom_kills == 0 || own.kind == Cause::Kind::gpu_oom ||
      own.kind == Cause::Kind::gpu_error || !is_retryable(own.kind))
    return own;
  // The kernel killed one of the rank's children, or a rank that it communicated with.
  Cause cause = host_oom(evidence, "a process of this attempt");
  cause.text += "; after that this rank failed: " + own.text;
  return cause;
}

}  // namespace

// Ranks wrote parts of the texts, which may be long: an exception can print a whole data set.
Cause diagnose(const FailureEvidence& evidence) {
  Cause cause = find_cause(evidence);
  constexpr std::size_t kMost = 16 << 10;
  cause.text = rendezvous::printable(cause.text.substr(0, kMost));
  cause.advice = rendezvous::printable(cause.advice);
  cause.evidence = rendezvous::printable(cause.evidence.substr(0, kMost));
  return cause;
}

}  // namespace mgpu::launcher
