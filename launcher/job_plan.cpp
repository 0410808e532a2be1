#include "launcher/job_plan.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "launcher/target.hpp"
#include "rendezvous/base/errors.hpp"

namespace mgpu::launcher {
namespace {

void check_workdir(const std::string& workdir) {
  struct stat st {};
  if (workdir.empty()) return;
  if (::stat(workdir.c_str(), &st) != 0)
    throw UsageError(fmt::format("--workdir {}: {}", workdir, rendezvous::error_text(errno)));
  if (!S_ISDIR(st.st_mode))
    throw UsageError(fmt::format("--workdir {}: not a directory", workdir));
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  return value;
}

// Several nodes meet in a later version; one that may be alone is.
void check_nodes(const Options& options) {
  if (options.min_nodes == 1 && options.node_rank == 0) return;
  throw UsageError(fmt::format("--nnodes {}: jobs over several nodes are not there yet; start one "
                               "node with --nnodes 1", options.min_nodes));
}

}  // namespace

JobPlan plan_job(const Options& options) {
  check_nodes(options);
  check_workdir(options.workdir);
  JobPlan plan;
  plan.command = resolve_target(options);
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  plan.placement.nproc = number_of_ranks(options, 0, cpus);
  plan.placement.world_size = plan.placement.nproc;
  plan.facts.cuda_visible_devices = variable("CUDA_VISIBLE_DEVICES");
  plan.facts.omp_num_threads_set = variable("OMP_NUM_THREADS").has_value();
  plan.facts.nccl_async_error_handling_set =
      variable("TORCH_NCCL_ASYNC_ERROR_HANDLING").has_value();
  plan.facts.run_id = options.rdzv_id;
  return plan;
}

}  // namespace mgpu::launcher
