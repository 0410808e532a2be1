#include "launcher/job_plan.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

#include "launcher/look_up.hpp"
#include "launcher/target.hpp"
#include "rendezvous/base/errors.hpp"

namespace mgpu::launcher {
namespace {

void check_workdir(const std::string& workdir) {
  struct stat st{};
  if (workdir.empty()) return;
  if (::stat(workdir.c_str(), &st) != 0)
    throw UsageError(fmt::format("--workdir {}: {}", workdir, rendezvous::error_text(errno)));
  if (!S_ISDIR(st.st_mode)) throw UsageError(fmt::format("--workdir {}: not a directory", workdir));
}

// Several nodes meet in a later version; one that may be alone is.
void check_nodes(const Options& options) {
  if (options.standalone || (options.min_nodes == 1 && options.node_rank == 0)) return;
  throw UsageError(
      fmt::format("--nnodes {}: jobs over several nodes are not there yet; start one "
                  "node with --nnodes 1",
                  options.min_nodes));
}

}  // namespace

JobPlan plan_job(const Options& options) {
  check_nodes(options);
  check_workdir(options.workdir);
  JobPlan plan;
  plan.command = resolve_target(options);
  NodeFacts node =
      look_up_node(options, Roots{}, [](const char* name) { return std::getenv(name); });
  plan.placement.nproc = node.nproc;
  plan.placement.world_size = node.nproc;
  plan.facts = std::move(node.facts);
  return plan;
}

}  // namespace mgpu::launcher
