#include "launcher/options/apply_scheduler.hpp"

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

// Whether the user made the job independent of the scheduler.
bool ignores_scheduler(const Options& o) {
  return o.standalone || !o.hostfile.empty() || o.rdzv_token_stdin ||
         (o.was_given("nnodes") && o.max_nodes == 1);
}

void fill_nodes(Options& o) {
  const auto& c = o.scheduler;
  if (!o.was_given("nnodes") && c.nodes > 0) o.min_nodes = o.max_nodes = c.nodes;
  if (!o.was_given("nnodes") && c.kind == SchedulerJob::Kind::pmix && c.node_rank.value_or(0) > 0)
    throw UsageError(
        fmt::format("PMIX_RANK={} means that there are several nodes, but not how many; set "
                    "--nnodes N, or --standalone if each node runs its own job",
                    *c.node_rank));
  if (o.max_nodes == 1 || o.was_given("node-rank") || !c.node_rank) return;
  if (*c.node_rank >= o.max_nodes)
    throw UsageError(
        fmt::format("node rank {} (from {}) is out of range: --nnodes is {}; raise it, or start "
                    "mgpu-run on {} nodes only",
                    *c.node_rank, name_of(c.kind), o.max_nodes, o.max_nodes));
  o.node_rank = *c.node_rank;
  o.given["node-rank"] = {"--node-rank", " ", std::to_string(o.node_rank)};
}

[[noreturn]] void throw_missing_address(SchedulerJob::Kind kind) {
  throw UsageError(fmt::format(
      "{} does not provide the address of node 0; set its host and a free port on it: "
      "{} MGPU_MASTER_ADDR=HOST {} MGPU_MASTER_PORT=29500",
      name_of(kind),
      kind == SchedulerJob::Kind::open_mpi ? "mpirun --map-by ppr:1:node -x" : "prterun -x", "-x"));
}

void fill_address(Options& o) {
  const auto& c = o.scheduler;
  if (o.was_given("rdzv-endpoint") || o.rdzv_backend.starts_with("etcd")) return;
  if (c.first_host.empty()) {
    if ((c.kind == SchedulerJob::Kind::open_mpi || c.kind == SchedulerJob::Kind::pmix) &&
        !o.was_given("master-addr"))
      throw_missing_address(c.kind);
    return;
  }
  const bool elastic = o.rdzv_backend == "c10d" || o.min_nodes != o.max_nodes;
  if (elastic && !o.was_given("master-addr")) {
    o.rdzv_endpoint = fmt::format("{}:{}", c.first_host, o.master_port.value_or(c.port));
    return;
  }
  if (!o.was_given("master-addr")) o.master_addr = c.first_host;
  if (!o.was_given("master-port")) o.master_port = c.port;
}

}  // namespace

void apply_scheduler(Options& o) {
  const auto& c = o.scheduler;
  if (ignores_scheduler(o)) o.scheduler.gpus_per_node.reset();
  if (c.kind == SchedulerJob::Kind::none || ignores_scheduler(o)) return;
  if (!c.problem.empty()) throw UsageError(c.problem);
  fill_nodes(o);
  if (o.max_nodes > 1) fill_address(o);
  if (!o.was_given("rdzv-id") && !c.job_id.empty()) o.rdzv_id = c.job_id;
  if (o.max_nodes == 1 && !c.note.empty()) o.notes.push_back(c.note);
}

}  // namespace mgpu::launcher
