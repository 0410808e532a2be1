#include "launcher/lifecycle/failure_kind.hpp"

#include <array>

namespace mgpu::launcher {
namespace {

struct KindName {
  FailureKind kind;
  std::string_view name;
};

constexpr std::array kKindNames = {
    KindName{FailureKind::none, "none"},
    KindName{FailureKind::exec_failure, "exec_failure"},
    KindName{FailureKind::usage, "usage"},
    KindName{FailureKind::import_error, "import_error"},
    KindName{FailureKind::syntax_error, "syntax_error"},
    KindName{FailureKind::host_oom, "host_oom"},
    KindName{FailureKind::host_oom_guess, "host_oom_guess"},
    KindName{FailureKind::gpu_oom, "gpu_oom"},
    KindName{FailureKind::disk_full, "disk_full"},
    KindName{FailureKind::gpu_error, "gpu_error"},
    KindName{FailureKind::cuda_error, "cuda_error"},
    KindName{FailureKind::nccl_error, "nccl_error"},
    KindName{FailureKind::peer_failure, "peer_failure"},
    KindName{FailureKind::hang, "hang"},
    KindName{FailureKind::lost_node, "lost_node"},
    KindName{FailureKind::data_error, "data_error"},
    KindName{FailureKind::nan, "nan"},
    KindName{FailureKind::python_exception, "python_exception"},
    KindName{FailureKind::preempted, "preempted"},
    KindName{FailureKind::killed, "killed"},
    KindName{FailureKind::signal, "signal"},
    KindName{FailureKind::exit_status, "exit_status"},
};

}  // namespace

std::string_view name_of(FailureKind kind) {
  for (const auto& entry : kKindNames)
    if (entry.kind == kind) return entry.name;
  return "none";
}

FailureKind kind_named(std::string_view name) {
  for (const auto& entry : kKindNames)
    if (entry.name == name) return entry.kind;
  return FailureKind::none;
}

std::vector<std::string_view> failure_kind_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : kKindNames)
    if (entry.kind != FailureKind::none) names.push_back(entry.name);
  return names;
}

bool is_retryable(FailureKind kind) {
  return kind != FailureKind::exec_failure && kind != FailureKind::usage &&
         kind != FailureKind::import_error && kind != FailureKind::syntax_error;
}

bool belongs_to_node(FailureKind kind) {
  return kind == FailureKind::gpu_error || kind == FailureKind::host_oom ||
         kind == FailureKind::exec_failure;
}

bool permits_replacement(FailureKind kind) {
  return kind == FailureKind::killed || kind == FailureKind::host_oom_guess ||
         kind == FailureKind::signal;
}

bool counts_as_oom(FailureKind kind) {
  return kind == FailureKind::gpu_oom;
}

}  // namespace mgpu::launcher
