#include "launcher/lifecycle/diagnosis.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <fmt/format.h>

#include "launcher/lifecycle/text_lines.hpp"
#include "launcher/lifecycle/xid.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/printable.hpp"

namespace mgpu::launcher {
namespace {

// Messages with which torch, CUDA and their libraries report that GPU memory ran out.
constexpr std::array<std::string_view, 7> kGpuOom = {
    "torch.OutOfMemoryError",    "torch.cuda.OutOfMemoryError", "CUDA out of memory",
    "CUDA error: out of memory", "cudaErrorMemoryAllocation",   "CUBLAS_STATUS_ALLOC_FAILED",
    "c10::OutOfMemoryError",
};

// Messages of CUDA, torch and NVML about a GPU, driver or link that has failed. Errors that a
// program can cause, such as an illegal memory access, are not here.
constexpr std::array<std::string_view, 15> kGpuErrors = {
    "uncorrectable ECC error",
    "cudaErrorECCUncorrectable",
    "uncorrectable NVLink error",
    "cudaErrorNvlinkUncorrectable",
    "CUDA error: hardware stack error",
    "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
    "CUDA error: unknown error",
    "CUDA unknown error",
    "CUDA error: no CUDA-capable device is detected",
    "CUDA-capable device(s) is/are busy or unavailable",
    "CUDA error: system not yet initialized",
    "CUDA error: system has unsupported display driver",
    "Found no NVIDIA driver on your system",
    "GPU has fallen off the bus",
    "GPU is lost",
};

// The line that contains position `at`.
std::string_view line_around(std::string_view text, size_t at) {
  const size_t begin = text.rfind('\n', at);
  return first_line(text.substr(begin == std::string_view::npos ? 0 : begin + 1));
}

std::string_view gpu_oom_line(std::string_view text) {
  for (const auto needle : kGpuOom)
    if (const size_t at = text.rfind(needle); at != std::string_view::npos)
      return line_around(text, at);
  return {};
}

std::string_view gpu_error_line(std::string_view text) {
  for (const auto needle : kGpuErrors)
    if (const size_t at = text.rfind(needle); at != std::string_view::npos)
      return line_around(text, at);
  for (const auto line : lines_of(text))
    if (reports_gpu_fault(line)) return line;
  return {};
}

constexpr const char* kUseLessHostMemory =
    "use less host memory (fewer data-loader workers or ranks, smaller batches) or raise the "
    "memory "
    "limit";

Cause over_limit(const MemoryFacts& memory) {
  return {Cause::Kind::host_oom,
          fmt::format("host out of memory: this rank and its children held {}, more than "
                      "--worker-memory {}, so mgpu-run killed them; {}",
                      size_text(memory.killed_at_bytes), size_text(memory.rank_limit_bytes),
                      memory_numbers(memory)),
          kUseLessHostMemory};
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
  } else {
    cause.kind = Cause::Kind::host_oom_guess;
    cause.text = fmt::format(
        "killed by SIGKILL, which mgpu-run did not send; the host may have "
        "run out of memory, see `dmesg`{}{}",
        numbers.empty() ? "" : "; ", numbers);
  }
  cause.advice = kUseLessHostMemory;
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
  if (cause.kind == Cause::Kind::python_exception) return mentions_gpu(cause.text);
  return (cause.kind == Cause::Kind::signal || cause.kind == Cause::Kind::exit_status) &&
         mentions_gpu(stderr_tail);
}

Cause gpu_error(std::string_view line) {
  return {Cause::Kind::gpu_error, fmt::format("GPU error: {}", line),
          "check the node's GPUs, driver and kernel log (mgpu-run doctor, nvidia-smi -q, dmesg)"};
}

Cause from_exception(const ErrorFile& error) {
  if (const auto line = gpu_error_line(error.message); !line.empty()) return gpu_error(line);
  const std::string message(first_line(error.message));
  const auto is = [&](std::string_view name) { return message.starts_with(name); };
  Cause cause{Cause::Kind::python_exception, message, {}};
  if (is("ModuleNotFoundError") || is("ImportError")) cause.kind = Cause::Kind::import_error;
  if (is("SyntaxError") || is("IndentationError") || is("TabError"))
    cause.kind = Cause::Kind::syntax_error;
  return cause;
}

// What argparse, click, CLI11 and python itself print before they exit with 2.
bool is_usage_message(std::string_view tail) {
  return tail.find("usage:") != std::string_view::npos ||
         tail.find("Usage:") != std::string_view::npos ||
         tail.find("can't open file") != std::string_view::npos;
}

// The cause from the error file, else from stderr, else from the exit status.
Cause from_rank_output(const FailureEvidence& evidence) {
  const ExitReport& report = evidence.report;
  auto line = evidence.error_file ? gpu_oom_line(evidence.error_file->message) : std::string_view{};
  if (line.empty()) line = gpu_oom_line(evidence.stderr_tail);
  if (!line.empty())
    return {
        Cause::Kind::gpu_oom, fmt::format("GPU out of memory: {}", line),
        "use less GPU memory: a smaller batch, shorter sequences, gradient checkpointing or more "
        "ranks"};

  if (evidence.error_file) return from_exception(*evidence.error_file);
  if (const auto found = python_exception_in(evidence.stderr_tail)) return from_exception(*found);
  line = gpu_error_line(evidence.stderr_tail);
  if (!line.empty()) return gpu_error(line);
  if (report.signal) {
    const auto last = last_line(evidence.stderr_tail);
    return {Cause::Kind::signal,
            fmt::format("{}{}{}", describe(report), last.empty() ? "" : ": ", last),
            {}};
  }
  if (report.code == exit_status::kUsage && is_usage_message(evidence.stderr_tail))
    return {Cause::Kind::usage, std::string(last_line(evidence.stderr_tail)), {}};
  const auto last = last_line(evidence.stderr_tail);
  return {Cause::Kind::exit_status,
          last.empty() ? describe(report) : fmt::format("{}: {}", describe(report), last),
          {}};
}

}  // namespace

std::string_view name_of(Cause::Kind kind) {
  switch (kind) {
    case Cause::Kind::none:
      return "none";
    case Cause::Kind::exec_failure:
      return "exec_failure";
    case Cause::Kind::usage:
      return "usage";
    case Cause::Kind::import_error:
      return "import_error";
    case Cause::Kind::syntax_error:
      return "syntax_error";
    case Cause::Kind::python_exception:
      return "python_exception";
    case Cause::Kind::host_oom:
      return "host_oom";
    case Cause::Kind::host_oom_guess:
      return "host_oom_guess";
    case Cause::Kind::gpu_oom:
      return "gpu_oom";
    case Cause::Kind::gpu_error:
      return "gpu_error";
    case Cause::Kind::signal:
      return "signal";
    case Cause::Kind::exit_status:
      return "exit_status";
  }
  return "none";
}

Cause::Kind kind_named(std::string_view name) {
  for (int kind = 0; kind <= static_cast<int>(Cause::Kind::exit_status); ++kind)
    if (name_of(static_cast<Cause::Kind>(kind)) == name) return static_cast<Cause::Kind>(kind);
  return Cause::Kind::none;
}

bool is_retryable(Cause::Kind kind) {
  return kind != Cause::Kind::exec_failure && kind != Cause::Kind::usage &&
         kind != Cause::Kind::import_error && kind != Cause::Kind::syntax_error;
}

bool belongs_to_node(Cause::Kind kind) {
  return kind == Cause::Kind::gpu_error || kind == Cause::Kind::host_oom ||
         kind == Cause::Kind::exec_failure;
}

bool counts_as_oom(Cause::Kind kind) {
  return kind == Cause::Kind::gpu_oom;
}

namespace {

Cause find_cause(const FailureEvidence& evidence) {
  const ExitReport& report = evidence.report;
  if (report.exec_error != 0) return {Cause::Kind::exec_failure, describe(report), {}};
  if (report.clean()) return {};
  if (report.signal == SIGKILL) return host_oom(evidence, "this rank");

  Cause own = from_rank_output(evidence);
  if (!evidence.gpu_fault.empty() && may_come_from_gpu(own, evidence.stderr_tail))
    return gpu_error(
        fmt::format("{}; after that this rank failed: {}", evidence.gpu_fault, own.text));
  if (evidence.memory.oom_kills == 0 || own.kind == Cause::Kind::gpu_oom ||
      own.kind == Cause::Kind::gpu_error || !is_retryable(own.kind))
    return own;
  // The kernel killed one of the rank's children, or a rank that it communicated with.
  Cause cause = host_oom(evidence, "a process of this attempt");
  cause.text += "; after that this rank failed: " + own.text;
  return cause;
}

}  // namespace

// Ranks wrote parts of both texts.
Cause diagnose(const FailureEvidence& evidence) {
  Cause cause = find_cause(evidence);
  cause.text = rendezvous::printable(cause.text);
  cause.advice = rendezvous::printable(cause.advice);
  return cause;
}

}  // namespace mgpu::launcher
