#include "launcher/lifecycle/signatures.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "launcher/lifecycle/text_lines.hpp"
#include "launcher/lifecycle/xid.hpp"

namespace mgpu::launcher {
namespace {

// The names of kinds must not reach the files that are compiled together with this one.
namespace table {

using enum FailureKind;
using enum Signature::Where;

constexpr bool kCascade = true;
constexpr bool kCertain = true;

// clang-format off
constexpr std::array kSignatures = {
    // GPU memory.
    Signature{"gpu_oom", gpu_oom, message, "torch.OutOfMemoryError"},
    Signature{"gpu_oom", gpu_oom, message, "torch.cuda.OutOfMemoryError"},
    Signature{"gpu_oom", gpu_oom, message, "c10::OutOfMemoryError"},
    Signature{"gpu_oom", gpu_oom, message, "CUDA out of memory"},
    Signature{"gpu_oom", gpu_oom, message, "CUDA error: out of memory"},
    Signature{"gpu_oom", gpu_oom, message, "CUDA driver error: out of memory"},
    Signature{"gpu_oom", gpu_oom, message, "CUDA_ERROR_OUT_OF_MEMORY"},
    Signature{"gpu_oom", gpu_oom, message, "cudaErrorMemoryAllocation"},
    Signature{"gpu_oom", gpu_oom, message, "CUBLAS_STATUS_ALLOC_FAILED"},
    Signature{"gpu_oom", gpu_oom, message, "Cuda failure", "'out of memory'"},

    // A GPU, its memory, driver or links. Errors that a program can cause are further below.
    Signature{"ecc", gpu_error, message, "uncorrectable ECC error"},
    Signature{"ecc", gpu_error, message, "cudaErrorECCUncorrectable"},
    Signature{"ecc", gpu_error, message, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    Signature{"nvlink", gpu_error, message, "uncorrectable NVLink error"},
    Signature{"nvlink", gpu_error, message, "cudaErrorNvlinkUncorrectable"},
    Signature{"nvlink", gpu_error, message, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
    Signature{"nvlink", gpu_error, message, "Invalid access of peer GPU memory over nvlink or a hardware error"},
    Signature{"gpu_hardware", gpu_error, message, "CUDA error: hardware stack error"},
    Signature{"gpu_hardware", gpu_error, message, "CUDA error: unknown error"},
    Signature{"gpu_hardware", gpu_error, message, "CUDA unknown error"},
    Signature{"gpu_lost", gpu_error, message, "GPU has fallen off the bus"},
    Signature{"gpu_lost", gpu_error, message, "GPU is lost"},
    Signature{"gpu_missing", gpu_error, message, "CUDA error: no CUDA-capable device is detected"},
    Signature{"gpu_missing", gpu_error, message, "CUDA-capable device(s) is/are busy or unavailable"},
    Signature{"gpu_driver", gpu_error, message, "CUDA error: system not yet initialized"},
    Signature{"gpu_driver", gpu_error, message, "CUDA error: system has unsupported display driver"},
    Signature{"gpu_driver", gpu_error, message, "Found no NVIDIA driver on your system"},

    // The scheduler. srun prints these into the output of the job.
    Signature{"slurm_preemption", preempted, message, "DUE TO PREEMPTION", "CANCELLED AT"},
    Signature{"slurm_requeue", preempted, message, "DUE TO JOB REQUEUE", "CANCELLED AT"},
    Signature{"slurm_time_limit", preempted, message, "DUE TO TIME LIMIT", "CANCELLED AT"},
    Signature{"slurm_node_failure", lost_node, message, "DUE TO NODE FAILURE", "CANCELLED AT"},
    Signature{"slurm_cancelled", killed, output, "CANCELLED AT", "slurmstepd"},

    // Disks, and shared memory, which is a file system as well.
    Signature{"shared_memory_full", disk_full, message, "insufficient shared memory (shm)"},
    Signature{"shared_memory_full", disk_full, message, "out of shared memory. Please try to raise"},
    Signature{"no_space", disk_full, message, "No space left on device"},
    Signature{"no_quota", disk_full, message, "Disk quota exceeded"},
    Signature{"short_write", disk_full, exception, " requested and ", " written"},       // numpy
    Signature{"short_write", disk_full, exception, "inline_container.cc", "unexpected pos"},  // torch
    Signature{"short_write", disk_full, exception, "PytorchStreamWriter failed writing file"},
    Signature{"short_write", disk_full, exception, "basic_ios::clear: iostream error"},  // torch.save

    // Memory of the host, as the program sees it. What the kernel reports comes first.
    Signature{"allocation_failed", host_oom, message, "DefaultCPUAllocator: can't allocate memory"},
    Signature{"allocation_failed", host_oom, message, "DefaultCPUAllocator: not enough memory"},
    Signature{"allocation_failed", host_oom, message, "std::bad_alloc"},
    Signature{"allocation_failed", host_oom, type, "MemoryError"},
    Signature{"allocation_failed", host_oom, type, "numpy._core._exceptions._ArrayMemoryError"},
    Signature{"allocation_failed", host_oom, message, "Cannot allocate memory"},
    Signature{"child_killed", host_oom_guess, exception, "DataLoader worker (pid", "is killed by signal: Killed"},

    // Numbers.
    Signature{"gradient_not_finite", nan, message, "the gradient is not finite", "weights"},
    Signature{"gradient_not_finite", nan, exception, "is non-finite, so it cannot be clipped"},
    Signature{"gradient_not_finite", nan, exception, "returned nan values in its"},
    Signature{"loss_nan", nan, message, "oss is nan"},
    Signature{"loss_nan", nan, message, "oss is NaN"},
    Signature{"loss_nan", nan, exception, "NaN loss"},
    Signature{"loss_nan", nan, exception, "nan loss"},
    Signature{"loss_nan", nan, exception, "NaN or Inf found in"},
    Signature{"nan_found", nan, exception, "contains either `inf`, `nan`"},
    Signature{"nan_found", nan, exception, "logits are not finite"},
    Signature{"nan_found", nan, exception, "FloatingPointError", "nan"},
    Signature{"nan_found", nan, exception, "FloatingPointError", "NaN"},
    Signature{"nan_found", nan, exception, "FloatingPointError", "not finite"},
    Signature{"nan_found", nan, exception, "FloatingPointError", "invalid value"},

    // CUDA errors that a program causes. Before cascades: the watchdog prints both.
    Signature{"illegal_access", cuda_error, message, "an illegal memory access was encountered"},
    Signature{"illegal_access", cuda_error, message, "cudaErrorIllegalAddress"},
    Signature{"device_assert", cuda_error, message, "device-side assert triggered"},
    Signature{"misaligned", cuda_error, message, "CUDA error: misaligned address"},
    Signature{"launch_failure", cuda_error, message, "unspecified launch failure"},
    Signature{"illegal_instruction", cuda_error, message, "CUDA error: an illegal instruction"},
    Signature{"invalid_device", cuda_error, message, "CUDA error: invalid device ordinal"},

    // What a rank sees when another one does not come to a collective.
    Signature{"watchdog_timeout", hang, message, "Watchdog caught collective operation timeout", {}, kCascade},
    Signature{"watchdog_stuck", hang, message, "watchdog got stuck for", {}, kCascade},
    Signature{"gloo_timeout", hang, message, "Timed out waiting", "operation to complete", kCascade},
    Signature{"trainer_timeout", hang, message, "did not finish within", "another rank is stuck", kCascade},
    Signature{"store_timeout", hang, message, "wait timeout after", "keys:", kCascade},
    Signature{"monitored_barrier", hang, message, "failed to pass monitoredBarrier in", {}, kCascade},

    // What a rank sees when another one has exited.
    Signature{"nccl_remote", peer_failure, message, "remote process exited or there was a network error", {}, kCascade},
    Signature{"nccl_remote", peer_failure, message, "ncclRemoteError", {}, kCascade},
    Signature{"nccl_remote", peer_failure, message, "Connection closed by remote peer", {}, kCascade},
    Signature{"gloo_closed", peer_failure, message, "Connection closed by peer", {}, kCascade},
    Signature{"gloo_closed", peer_failure, message, "gloo/transport", "Connection reset by peer", kCascade},
    Signature{"gloo_closed", peer_failure, message, "gloo/transport", "Broken pipe", kCascade},
    Signature{"gloo_closed", peer_failure, message, "gloo/transport", "Connection refused", kCascade},
    Signature{"store_closed", peer_failure, message, "Did the remote server shutdown or crash", {}, kCascade},
    Signature{"store_closed", peer_failure, message, "failed to recv, got 0 bytes", {}, kCascade},
    Signature{"store_closed", peer_failure, type, "torch.distributed.DistNetworkError", {}, kCascade},
    Signature{"store_closed", peer_failure, message, "[c10d]", "Connection reset by peer", kCascade},
    Signature{"cannot_join", peer_failure, message, " other ranks through ", "cannot join the", kCascade},

    // NCCL itself, its network or its configuration.
    Signature{"nccl_duplicate_gpu", nccl_error, message, "Duplicate GPU detected"},
    Signature{"nccl_cuda", nccl_error, message, "unhandled cuda error"},
    Signature{"nccl_system", nccl_error, message, "unhandled system error"},
    Signature{"nccl_system", nccl_error, message, "ncclSystemError"},
    Signature{"nccl_usage", nccl_error, message, "ncclInvalidUsage"},
    Signature{"nccl_usage", nccl_error, message, "ncclInvalidArgument"},
    Signature{"nccl_internal", nccl_error, message, "ncclInternalError"},
    Signature{"nccl", nccl_error, message, "NCCL error"},
    Signature{"nccl", nccl_error, message, "NCCL Error"},
    Signature{"nccl", nccl_error, output, "NCCL WARN", "Cuda failure"},

    // The remaining errors of CUDA and its libraries.
    Signature{"cublas", cuda_error, message, "CUBLAS_STATUS_"},
    Signature{"cudnn", cuda_error, message, "cuDNN error"},
    Signature{"cudnn", cuda_error, message, "CUDNN_STATUS_"},
    Signature{"cuda", cuda_error, message, "CUDA error: "},
    Signature{"cuda", cuda_error, message, "CUDA driver error: "},

    // The program itself.
    Signature{"dynamic_module", import_error, exception, "ModuleNotFoundError", "transformers_modules"},  // of a race
    Signature{"no_module", import_error, type, "ModuleNotFoundError: No module named", {}, false, kCertain},
    Signature{"no_name", import_error, type, "ImportError: cannot import name", {}, false, kCertain},
    Signature{"import", import_error, type, "ImportError"},
    Signature{"import", import_error, type, "ModuleNotFoundError"},
    Signature{"no_library", import_error, message, "cannot open shared object file"},
    Signature{"no_module", import_error, output, "python", ": No module named "},
    Signature{"syntax", syntax_error, type, "SyntaxError", {}, false, kCertain},
    Signature{"syntax", syntax_error, type, "IndentationError", {}, false, kCertain},
    Signature{"syntax", syntax_error, type, "TabError", {}, false, kCertain},
    Signature{"unused_arguments", usage, exception, "are not used by the HfArgumentParser", {}, false, kCertain},
    Signature{"interrupted", killed, type, "KeyboardInterrupt"},
    Signature{"interrupted", killed, exception, "SignalException", "got signal"},

    // A network, a file server or a disk through which the program reads. Before data errors: the
    // data may be in order.
    Signature{"network", python_exception, type, "ConnectionError"},
    Signature{"network", python_exception, type, "ConnectionResetError"},
    Signature{"network", python_exception, type, "ConnectionRefusedError"},
    Signature{"network", python_exception, type, "ConnectionAbortedError"},
    Signature{"network", python_exception, type, "BrokenPipeError"},
    Signature{"network", python_exception, type, "TimeoutError"},
    Signature{"network", python_exception, exception, "Caught ConnectionError in DataLoader worker"},
    Signature{"network", python_exception, exception, "Caught TimeoutError in DataLoader worker"},
    Signature{"network", python_exception, type, "socket."},
    Signature{"network", python_exception, type, "ssl.SSL"},
    Signature{"network", python_exception, type, "http.client."},
    Signature{"network", python_exception, type, "asyncio.exceptions.TimeoutError"},
    Signature{"network", python_exception, exception, "urllib.error."},
    Signature{"network", python_exception, exception, "urllib3.exceptions."},
    Signature{"network", python_exception, exception, "requests.exceptions."},
    Signature{"network", python_exception, exception, "aiohttp.client_exceptions."},
    Signature{"network", python_exception, exception, "botocore.exceptions."},
    Signature{"network", python_exception, exception, "google.api_core.exceptions."},
    Signature{"network", python_exception, exception, "huggingface_hub.errors."},
    Signature{"network", python_exception, exception, "fsspec.exceptions.FSTimeoutError"},
    Signature{"network", python_exception, exception, "httpx."},
    Signature{"network", python_exception, exception, "Connection timed out"},
    Signature{"network", python_exception, exception, "Connection reset by peer"},
    Signature{"network", python_exception, exception, "Connection refused"},
    Signature{"network", python_exception, exception, "Network is unreachable"},
    Signature{"network", python_exception, exception, "No route to host"},
    Signature{"network", python_exception, exception, "Host is down"},
    Signature{"network", python_exception, exception, "Temporary failure in name resolution"},
    Signature{"network", python_exception, exception, "Name or service not known"},
    Signature{"file_system", python_exception, exception, "Errno 5] Input/output error"},
    Signature{"file_system", python_exception, exception, "Stale file handle"},
    Signature{"file_system", python_exception, exception, "Transport endpoint is not connected"},
    Signature{"file_system", python_exception, exception, "Remote I/O error"},
    Signature{"file_system", python_exception, exception, "Read-only file system"},
    Signature{"descriptors", python_exception, exception, "Too many open files"},

    // What the program reads.
    Signature{"json", data_error, type, "json.decoder.JSONDecodeError"},
    Signature{"json", data_error, type, "orjson.JSONDecodeError"},
    Signature{"json", data_error, message, "invalid JSON"},
    Signature{"json", data_error, message, ": not a JSON object"},
    Signature{"text", data_error, type, "UnicodeDecodeError"},
    Signature{"format", data_error, message, "cannot detect the dataset format from"},
    Signature{"record", data_error, message, "the column \"", "\" is missing"},
    Signature{"record", data_error, message, "the column \"", "\" must be"},
    Signature{"shard", data_error, message, " is damaged"},
    Signature{"shard", data_error, message, " has token ids that the model does not have"},
    Signature{"safetensors", data_error, exception, "Error while deserializing header"},
    Signature{"checkpoint", data_error, exception, "PytorchStreamReader failed"},
    Signature{"pickle", data_error, exception, "UnpicklingError"},
    Signature{"archive", data_error, exception, "BadZipFile"},
    Signature{"archive", data_error, exception, "BadGzipFile"},
    Signature{"arrow", data_error, type, "pyarrow.lib.Arrow"},
    Signature{"dataset", data_error, type, "datasets.exceptions."},
    Signature{"image", data_error, type, "PIL.UnidentifiedImageError"},
    Signature{"batch", data_error, exception, "stack expects each tensor to be equal size"},
    Signature{"loader_exited", python_exception, exception, "DataLoader worker (pid"},  // its child died
    Signature{"loader", data_error, exception, "in DataLoader worker process"},
    Signature{"loader", data_error, callstack, "torch/utils/data/_utils/fetch.py"},
    Signature{"loader", data_error, callstack, "torch/utils/data/_utils/collate.py"},
    Signature{"loader", data_error, callstack, ", in __getitem__"},
};
// clang-format on

constexpr Signature kXid{"xid", gpu_error, message, "Xid ("};

}  // namespace table

using table::kSignatures;
using table::kXid;

// Lines of output that are searched. Earlier ones are about problems that the program survived.
constexpr std::size_t kLinesOfOutput = 60;

std::string_view line_with(std::string_view text, std::string_view words) {
  const auto at = text.rfind(words);
  const auto begin = text.rfind('\n', at);
  return first_line(text.substr(begin == std::string_view::npos ? 0 : begin + 1));
}

bool has_words(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

bool is_in(const Signature& signature, std::string_view text) {
  return has_words(text, signature.words) && has_words(text, signature.also);
}

std::optional<SignatureMatch> xid_in(const std::vector<std::string_view>& lines) {
  const auto found = std::ranges::find_if(lines, reports_gpu_fault);
  if (found == lines.end()) return std::nullopt;
  return SignatureMatch{&kXid, *found};
}

}  // namespace

std::span<const Signature> signatures() {
  return kSignatures;
}

std::optional<SignatureMatch> match_exception(std::string_view message,
                                              std::string_view callstack) {
  if (const auto xid = xid_in(lines_of(message))) return xid;
  for (const auto& signature : kSignatures) {
    switch (signature.where) {
      case Signature::Where::message:
      case Signature::Where::exception:
        if (is_in(signature, message))
          return SignatureMatch{&signature, line_with(message, signature.words)};
        break;
      case Signature::Where::type:
        if (message.starts_with(signature.words) && has_words(message, signature.also))
          return SignatureMatch{&signature, first_line(message)};
        break;
      case Signature::Where::callstack:
        if (is_in(signature, callstack)) return SignatureMatch{&signature, first_line(message)};
        break;
      case Signature::Where::output:
        break;
    }
  }
  return std::nullopt;
}

// The words of an entry must be in one line, because the lines may be of different processes.
std::optional<SignatureMatch> match_output(std::string_view output) {
  auto lines = lines_of(last_lines(output, kLinesOfOutput));
  std::ranges::reverse(lines);
  if (const auto xid = xid_in(lines)) return xid;
  for (const auto& signature : kSignatures) {
    using Where = Signature::Where;
    if (signature.where != Where::message && signature.where != Where::output) continue;
    const auto found =
        std::ranges::find_if(lines, [&](std::string_view line) { return is_in(signature, line); });
    if (found != lines.end()) return SignatureMatch{&signature, *found};
  }
  return std::nullopt;
}

std::string_view gpu_oom_before(std::string_view text, std::size_t exception) {
  for (const auto& signature : kSignatures) {
    if (signature.kind != FailureKind::gpu_oom) break;
    const auto at = text.rfind(signature.words);
    if (at == std::string_view::npos) continue;
    const auto chained = text.find("above exception", at);
    if (at < exception && (chained == std::string_view::npos || chained > exception)) continue;
    const auto line = line_with(text, signature.words);
    if (has_words(line, signature.also)) return line;
  }
  return {};
}

}  // namespace mgpu::launcher
