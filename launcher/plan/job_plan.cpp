#include "launcher/plan/job_plan.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

#include "launcher/nodes/credentials.hpp"
#include "launcher/nodes/etcd_prefix.hpp"
#include "launcher/plan/look_up.hpp"
#include "launcher/plan/target.hpp"
#include "rendezvous/base/errors.hpp"

namespace mgpu::launcher {
namespace {

void check_workdir(const Options& options) {
  struct stat st{};
  if (options.workdir.empty()) return;
  const auto origin = options.origin("workdir", options.workdir).text();
  if (::stat(options.workdir.c_str(), &st) != 0)
    throw UsageError(fmt::format("{}: {}", origin, rendezvous::error_text(errno)));
  if (!S_ISDIR(st.st_mode)) throw UsageError(fmt::format("{}: not a directory", origin));
}

// The report is written when the job has ended: a path that cannot be written must not be found
// only then.
void check_report(const Options& options) {
  if (options.report.empty()) return;
  const auto refuse = [&](int error) {
    throw UsageError(fmt::format("{}: cannot write there: {}",
                                 options.origin("report", options.report).text(),
                                 rendezvous::error_text(error)));
  };
  struct stat st{};
  if (::stat(options.report.c_str(), &st) == 0) {
    if (S_ISDIR(st.st_mode)) refuse(EISDIR);
    if (::access(options.report.c_str(), W_OK) != 0) refuse(errno);
    return;
  }
  const auto folder = options.report.substr(0, options.report.rfind('/') + 1) + ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse(errno);
  if (options.report.ends_with('/')) refuse(EISDIR);
}

}  // namespace

JobPlan plan_job(const Options& options) {
  check_workdir(options);
  check_report(options);
  JobPlan plan;
  plan.rendezvous_plan = plan_rendezvous(options);
  if (plan.rendezvous_plan) {
    plan.credentials = find_credentials(options, [](const std::string& name) {
      const char* value = std::getenv(name.c_str());
      return value ? std::optional<std::string>(value) : std::nullopt;
    });
    check_signing(options, *plan.rendezvous_plan, plan.credentials);
    if (plan.rendezvous_plan->etcd && plan.rendezvous_plan->etcd_prefix.empty())
      plan.rendezvous_plan->etcd_prefix = default_etcd_prefix(::geteuid());
  }
  plan.command = resolve_target(options);
  NodeFacts node =
      look_up_node(options, Roots{}, [](const char* name) { return std::getenv(name); });
  plan.placement.nproc = node.nproc;
  plan.placement.world_size = node.nproc;
  plan.facts = std::move(node.facts);
  return plan;
}

}  // namespace mgpu::launcher
