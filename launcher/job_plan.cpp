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

rendezvous::Credentials credentials_of(const Options& options) {
  if (options.insecure) return {};
  if (const char* token = std::getenv("MGPU_RDZV_TOKEN")) return {.secret = token};
  throw UsageError(
      fmt::format("--nnodes {}: nothing says who may join; give all nodes one secret with "
                  "--rdzv-token-file or MGPU_RDZV_TOKEN, or let anybody join with --insecure",
                  options.max_nodes));
}

}  // namespace

JobPlan plan_job(const Options& options) {
  check_workdir(options.workdir);
  JobPlan plan;
  plan.team = plan_team(options);
  if (plan.team) plan.credentials = credentials_of(options);
  plan.command = resolve_target(options);
  NodeFacts node =
      look_up_node(options, Roots{}, [](const char* name) { return std::getenv(name); });
  plan.placement.nproc = node.nproc;
  plan.placement.world_size = node.nproc;
  plan.facts = std::move(node.facts);
  return plan;
}

}  // namespace mgpu::launcher
