#include "launcher/options/scheduler.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

#include "launcher/options/hostlist.hpp"
#include "launcher/options/options.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

using Number = unsigned long long;

// Steps without a program of srun (batch scripts, salloc's shell) have ids from here on.
constexpr Number kFirstSpecialStep = 0xfffffff0;

std::optional<Number> number_in(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Looks up variables and records the values that were used.
class SchedulerReader {
 public:
  SchedulerReader(const Variables& variables, SchedulerJob& scheduler)
      : variables_(variables), scheduler_(scheduler) {}

  // The value and name of the first of these variables that is set and not empty.
  struct Value {
    std::string name, text;
  };
  std::optional<Value> first(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (auto text = variables_(name); text && !text->empty()) return Value{name, *text};
    return std::nullopt;
  }

  bool has(const char* name) const { return first({name}).has_value(); }

  std::optional<Number> number(std::initializer_list<const char*> names, Number most) {
    const auto value = first(names);
    if (!value) return std::nullopt;
    const auto number = number_in(value->text);
    if (!number || *number > most)
      throw UsageError(fmt::format("{}={}: need a whole number from 0 to {}", value->name,
                                   shown(value->text, 24), most));
    return number;
  }

  void note(const char* what, std::string value, std::string from) {
    scheduler_.found.push_back({what, std::move(value), std::move(from)});
  }

 private:
  const Variables& variables_;
  SchedulerJob& scheduler_;
};

// "4", "a100:4" or "a100:2,h100:2".
std::optional<int> gpu_count(std::string_view text) {
  Number total = 0;
  while (!text.empty()) {
    auto part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    if (const auto colon = part.rfind(':'); colon != part.npos) part.remove_prefix(colon + 1);
    const auto count = number_in(part);
    if (!count || *count > kMostRanks) return std::nullopt;
    total += *count;
  }
  return total > 0 && total <= kMostRanks ? std::optional<int>(static_cast<int>(total))
                                          : std::nullopt;
}

void read_slurm_gpus(SchedulerReader& read, SchedulerJob& c) {
  const auto value = read.first({"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"});
  if (!value) return;
  c.gpus_per_node = gpu_count(value->text);
  if (c.gpus_per_node) read.note("GPUs per node", std::to_string(*c.gpus_per_node), value->name);
}

// A batch script or a shell of salloc: one process on one node, however many nodes the job has.
void read_slurm_job(SchedulerReader& read, SchedulerJob& c, Number job) {
  c.nodes = 1;
  c.job_id = fmt::format("slurm-{}", job);
  read.note("job", c.job_id, "SLURM_JOB_ID");
  read_slurm_gpus(read, c);
  const auto nodes = read.number({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, kMostNodes);
  if (nodes.value_or(1) > 1)
    c.note = fmt::format(
        "Slurm job {} has {} nodes, but srun did not start mgpu-run, so it uses only this node; to "
        "use all: srun --ntasks-per-node=1 mgpu-run ...",
        job, *nodes);
}

void check_one_task_a_node(SchedulerReader& read) {
  const auto tasks = read.number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1U << 24);
  const auto nodes = read.number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, kMostNodes);
  if (!tasks || !nodes || *tasks == *nodes) return;
  throw UsageError(fmt::format(
      "srun started {} tasks on {} node{}, but mgpu-run needs one task per node and starts the "
      "ranks itself: use srun --ntasks-per-node=1 mgpu-run ..., or --standalone if each task is "
      "its own job",
      *tasks, *nodes, *nodes == 1 ? "" : "s"));
}

[[noreturn]] void throw_missing_in_step(const char* name) {
  throw UsageError(
      fmt::format("SLURM_STEP_ID is set but {} is not; start mgpu-run with srun, or use "
                  "--standalone for a job on this node only",
                  name));
}

void read_slurm_hosts(SchedulerReader& read, SchedulerJob& c) {
  const auto list = read.first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) throw_missing_in_step("SLURM_STEP_NODELIST");
  try {
    c.hosts = expand_hostlist(list->text);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", list->name, e.what()));
  }
  if (c.hosts.size() != static_cast<std::size_t>(c.nodes))
    throw UsageError(fmt::format("{}={} names {} hosts, but the step has {} nodes", list->name,
                                 shown(list->text), c.hosts.size(), c.nodes));
  c.first_host = c.hosts.front();
  read.note("first host", c.first_host, list->name);
}

void read_slurm_step(SchedulerReader& read, SchedulerJob& c, Number job, Number step) {
  c.job_id = fmt::format("slurm-{}.{}", job, step);
  read.note("job", c.job_id, "SLURM_JOB_ID, SLURM_STEP_ID");
  read_slurm_gpus(read, c);
  check_one_task_a_node(read);
  const auto count = read.first({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  if (!count) throw_missing_in_step("SLURM_STEP_NUM_NODES");
  c.nodes = static_cast<int>(*read.number({count->name.c_str()}, kMostNodes));
  if (c.nodes == 0)
    throw UsageError(fmt::format("{}=0: a job needs at least one node", count->name));
  read.note("nodes", std::to_string(c.nodes), count->name);
  const auto rank = read.number({"SLURM_NODEID"}, kMostNodes);
  if (!rank) throw_missing_in_step("SLURM_NODEID");
  if (*rank >= static_cast<Number>(c.nodes))
    throw UsageError(fmt::format("SLURM_NODEID={} is out of range: {}={} has node ranks 0 to {}",
                                 *rank, count->name, count->text, c.nodes - 1));
  c.node_rank = static_cast<int>(*rank);
  read.note("node rank", std::to_string(*rank), "SLURM_NODEID");
  read_slurm_hosts(read, c);
  c.port = slurm_port(job, step);
  read.note("port", std::to_string(c.port), "SLURM_JOB_ID, SLURM_STEP_ID");
}

void read_slurm(SchedulerReader& read, SchedulerJob& c) {
  constexpr Number kMost = std::numeric_limits<unsigned>::max();
  const auto job = read.number({"SLURM_JOB_ID", "SLURM_JOBID"}, kMost);
  const auto step = read.number({"SLURM_STEP_ID", "SLURM_STEPID"}, kMost);
  if (step && *step < kFirstSpecialStep)
    read_slurm_step(read, c, job.value_or(0), *step);
  else
    read_slurm_job(read, c, job.value_or(0));
}

void read_open_mpi(SchedulerReader& read, SchedulerJob& c) {
  const auto size = read.number({"OMPI_COMM_WORLD_SIZE"}, 1U << 24);
  const auto rank = read.number({"OMPI_COMM_WORLD_RANK"}, 1U << 24);
  const auto local = read.number({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1U << 24);
  if (!size || !rank || !local)
    throw UsageError(fmt::format(
        "{} is not set, but other Open MPI variables are; start mgpu-run with mpirun, or unset "
        "OMPI_COMM_WORLD_SIZE",
        !size   ? "OMPI_COMM_WORLD_SIZE"
        : !rank ? "OMPI_COMM_WORLD_RANK"
                : "OMPI_COMM_WORLD_LOCAL_SIZE"));
  if (*local > 1)
    throw UsageError(fmt::format(
        "mpirun started {} processes on this node, but mgpu-run needs one and starts the ranks "
        "itself: use mpirun --map-by ppr:1:node mgpu-run ..., or --standalone if each process is "
        "its own job",
        *local));
  if (*size == 0 || *size > kMostNodes)
    throw UsageError(fmt::format("OMPI_COMM_WORLD_SIZE={}: need 1 to {} nodes", *size, kMostNodes));
  if (*rank >= *size)
    throw UsageError(
        fmt::format("OMPI_COMM_WORLD_RANK={} is out of range: OMPI_COMM_WORLD_SIZE={} has ranks 0 "
                    "to {}",
                    *rank, *size, *size - 1));
  c.nodes = static_cast<int>(*size);
  c.node_rank = static_cast<int>(*rank);
  read.note("nodes", std::to_string(*size), "OMPI_COMM_WORLD_SIZE");
  read.note("node rank", std::to_string(*rank), "OMPI_COMM_WORLD_RANK");
}

void read_pmix(SchedulerReader& read, SchedulerJob& c) {
  const auto rank = read.number({"PMIX_RANK"}, kMostNodes - 1);
  if (!rank) throw UsageError("PMIX_NAMESPACE is set but PMIX_RANK is not; set both or neither");
  c.node_rank = static_cast<int>(*rank);
  read.note("node rank", std::to_string(*rank), "PMIX_RANK");
}

// The number of nodes and the address come as PET_NNODES and PET_MASTER_ADDR.
void read_kubernetes(SchedulerReader& read, SchedulerJob& c) {
  const auto index = read.number({"JOB_COMPLETION_INDEX"}, kMostNodes - 1);
  if (!index) return;
  c.node_rank = static_cast<int>(*index);
  read.note("node rank", std::to_string(*index), "JOB_COMPLETION_INDEX");
}

SchedulerJob::Kind kind_of(const SchedulerReader& read) {
  if (read.has(rendezvous::variable::kJobCookie)) return SchedulerJob::Kind::none;
  // mpirun in a Slurm job starts its daemons with srun, so that Slurm's variables are set too.
  if (read.first({"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}))
    return SchedulerJob::Kind::open_mpi;
  if (read.first({"SLURM_JOB_ID", "SLURM_STEP_ID"})) return SchedulerJob::Kind::slurm;
  if (read.first({"PMIX_RANK", "PMIX_NAMESPACE"})) return SchedulerJob::Kind::pmix;
  if (read.has("KUBERNETES_SERVICE_HOST") || read.has("JOB_COMPLETION_INDEX"))
    return SchedulerJob::Kind::kubernetes;
  return SchedulerJob::Kind::none;
}

}  // namespace

std::optional<std::string> own_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

SchedulerJob read_scheduler(const Variables& variables) {
  SchedulerJob scheduler;
  SchedulerReader read(variables, scheduler);
  scheduler.kind = kind_of(read);
  try {
    switch (scheduler.kind) {
      case SchedulerJob::Kind::none:
        break;
      case SchedulerJob::Kind::slurm:
        read_slurm(read, scheduler);
        break;
      case SchedulerJob::Kind::kubernetes:
        read_kubernetes(read, scheduler);
        break;
      case SchedulerJob::Kind::open_mpi:
        read_open_mpi(read, scheduler);
        break;
      case SchedulerJob::Kind::pmix:
        read_pmix(read, scheduler);
        break;
    }
  } catch (const UsageError& e) {
    scheduler.problem = e.what();
  }
  return scheduler;
}

const char* name_of(SchedulerJob::Kind kind) {
  switch (kind) {
    case SchedulerJob::Kind::none:
      return "";
    case SchedulerJob::Kind::slurm:
      return "Slurm";
    case SchedulerJob::Kind::kubernetes:
      return "Kubernetes";
    case SchedulerJob::Kind::open_mpi:
      return "Open MPI";
    case SchedulerJob::Kind::pmix:
      return "PMIx";
  }
  return "";
}

int slurm_port(unsigned long long job, unsigned long long step) {
  // Neighbouring jobs are 61 apart, so that 61 steps of each have different ports.
  return static_cast<int>(20000 + (job % 10000 * 61 + step % 10000) % 10000);
}

}  // namespace mgpu::launcher
