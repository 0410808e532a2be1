#include "launcher/plan/job_plan.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "launcher/nodes/credentials.hpp"
#include "launcher/nodes/etcd_prefix.hpp"
#include "launcher/plan/look_up.hpp"
#include "launcher/plan/target.hpp"
#include "rendezvous/base/errors.hpp"

namespace mgpu::launcher {
namespace {

constexpr int kMostLinks = 40;  // that the kernel follows

void check_workdir(const Options& options) {
  struct stat st{};
  if (options.workdir.empty()) return;
  const auto origin = options.origin("workdir", options.workdir).text();
  if (::stat(options.workdir.c_str(), &st) != 0)
    throw UsageError(fmt::format("{}: {}", origin, rendezvous::error_text(errno)));
  if (!S_ISDIR(st.st_mode)) throw UsageError(fmt::format("{}: not a directory", origin));
}

// Where a path leads that may be a dangling link.
std::string end_of_links(std::filesystem::path path) {
  std::error_code failed;
  for (int links = 0; links < kMostLinks; ++links) {
    const auto target = std::filesystem::read_symlink(path, failed);
    if (failed) break;
    path = path.parent_path() / target;  // an absolute target replaces the folder
  }
  return path.string();
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
    // write_file() uses the descriptors of these two; another socket cannot be opened.
    const bool own = options.report == "/dev/stdout" || options.report == "/dev/stderr";
    if (S_ISSOCK(st.st_mode) && !own) refuse(ENXIO);
    return;
  }
  if (errno != ENOENT) refuse(errno);
  const auto end = end_of_links(options.report);
  const auto folder = end.substr(0, end.rfind('/') + 1) + ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse(errno);
  if (end.ends_with('/')) refuse(EISDIR);
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
