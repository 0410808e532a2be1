#include "launcher/options/scheduler.hpp"

#include <set>

#include "launcher/plan/plan.hpp"
#include "tests/launcher/cli_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::tests::Environment;
using mgpu::tests::parse;

namespace {

// As slurmd 22.05 sets them for the second of two tasks.
const Environment kStep{{"SLURM_JOB_ID", "4711"},
                        {"SLURM_STEP_ID", "2"},
                        {"SLURM_STEPID", "2"},
                        {"SLURM_NNODES", "8"},
                        {"SLURM_JOB_NUM_NODES", "8"},
                        {"SLURM_JOB_NODELIST", "node[1-8]"},
                        {"SLURM_STEP_NUM_NODES", "2"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_STEP_NODELIST", "node[03,5]"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_GPUS_ON_NODE", "4"}};

// As Open MPI 4 sets them for the third of three.
const Environment kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "3"},
                           {"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                           {"PMIX_RANK", "2"},
                           {"PMIX_NAMESPACE", "12345"}};

Environment with(Environment base, const Environment& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

Environment without(Environment base, const std::string& name) {
  base.erase(name);
  return base;
}

SchedulerJob scheduler_in(const Environment& environment) {
  return read_scheduler([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("a Slurm step gives nodes, rank, host, port and GPUs", "[scheduler]") {
  const auto c = scheduler_in(kStep);
  CHECK(c.kind == SchedulerJob::Kind::slurm);
  CHECK(c.problem.empty());
  CHECK(c.nodes == 2);
  CHECK(c.node_rank == 1);
  CHECK(c.hosts == std::vector<std::string>{"node03", "node5"});
  CHECK(c.gpus_per_node == 4);
  CHECK(c.found.front() ==
        SchedulerJob::Found{"job", "slurm-4711.2", "SLURM_JOB_ID, SLURM_STEP_ID"});

  const auto o = parse({"train.py"}, kStep);
  CHECK(o.min_nodes == 2);
  CHECK(o.max_nodes == 2);
  CHECK(o.node_rank == 1);
  CHECK(o.was_given("node-rank"));
  CHECK(o.master_addr == "node03");
  CHECK(o.master_port == slurm_port(4711, 2));
  CHECK(o.rdzv_id == "slurm-4711.2");
}

TEST_CASE("options override Slurm's variables", "[scheduler]") {
  const auto o = parse({"--nnodes", "3", "--node-rank", "2", "--master-addr", "h", "--master-port",
                        "29500", "--rdzv-id", "mine", "-n", "1", "x"},
                       kStep);
  CHECK(o.max_nodes == 3);
  CHECK(o.node_rank == 2);
  CHECK(o.master_addr == "h");
  CHECK(o.master_port == 29500);
  CHECK(o.rdzv_id == "mine");
  CHECK(o.nproc.number == 1);

  const auto pet = parse({"x"}, with(kStep, {{"PET_NODE_RANK", "0"}, {"MGPU_MASTER_PORT", "7"}}));
  CHECK(pet.node_rank == 0);
  CHECK(pet.master_port == 7);
  CHECK(pet.master_addr == "node03");
}

TEST_CASE("nodes of an elastic job join at the first host of the step", "[scheduler]") {
  const auto o = parse({"--nnodes", "1:2", "x"}, kStep);
  CHECK(o.rdzv_endpoint == "node03:" + std::to_string(slurm_port(4711, 2)));
  CHECK_FALSE(o.master_addr);
  CHECK(o.node_rank == 1);
  CHECK(parse({"--rdzv-backend", "c10d", "x"}, kStep).rdzv_endpoint.starts_with("node03:"));
  const auto own = parse({"--rdzv-backend", "c10d", "--rdzv-endpoint", "h:1", "x"}, kStep);
  CHECK(own.rdzv_endpoint == "h:1");
  CHECK_FALSE(own.master_addr);
  CHECK(parse({"--rdzv-backend", "etcd", "x"}, kStep).rdzv_endpoint.empty());
}

TEST_CASE("Slurm's variables are ignored by a standalone job", "[scheduler]") {
  const auto broken = with(kStep, {{"SLURM_STEP_NUM_TASKS", "16"}});
  const auto line = GENERATE(std::vector<std::string>{"--standalone", "x"},
                             std::vector<std::string>{"--nnodes", "1", "x"},
                             std::vector<std::string>{"--rdzv-token-stdin", "x"},
                             std::vector<std::string>{"--hostfile", "f", "x"});
  CAPTURE(line);
  const auto o = parse(line, broken);
  CHECK(o.max_nodes == 1);
  CHECK_FALSE(o.master_addr);
  CHECK(number_of_ranks(o, 0, 1) == 1);
  CHECK(parse({"devices"}, broken).command == Command::devices);
  CHECK(scheduler_in(with(kStep, {{"MGPU_JOB_COOKIE", "a"}})).kind ==
        SchedulerJob::Kind::none);  // within a rank
}

TEST_CASE("a batch script and a shell of salloc are one node", "[scheduler]") {
  auto environment = without(without(kStep, "SLURM_STEP_ID"), "SLURM_STEPID");
  if (GENERATE(false, true)) environment["SLURM_STEP_ID"] = "4294967290";  // salloc's shell
  const auto o = parse({"x"}, environment);
  CHECK(o.max_nodes == 1);
  CHECK(o.node_rank == 0);
  CHECK(o.rdzv_id == "slurm-4711");
  CHECK_FALSE(o.master_addr);
  REQUIRE(o.notes.size() == 1);
  CHECK(o.notes[0] ==
        "Slurm job 4711 has 8 nodes, but srun did not start mgpu-run, so it uses only this node; "
        "to use all: srun --ntasks-per-node=1 mgpu-run ...");
  environment["SLURM_JOB_NUM_NODES"] = "1";
  CHECK(parse({"x"}, environment).notes.empty());
}

TEST_CASE("wrong or missing Slurm variables are one-line errors", "[scheduler]") {
  struct Case {
    Environment environment;
    std::string message;
  };
  const auto c = GENERATE(values<Case>({
      {with(kStep, {{"SLURM_STEP_NUM_TASKS", "16"}}),
       "srun started 16 tasks on 2 nodes, but mgpu-run needs one task per node and starts the "
       "ranks itself: use srun --ntasks-per-node=1 mgpu-run ..., or --standalone if each task is "
       "its own job"},
      {without(kStep, "SLURM_NODEID"),
       "SLURM_STEP_ID is set but SLURM_NODEID is not; start mgpu-run with srun, or use "
       "--standalone for a job on this node only"},
      {with(kStep, {{"SLURM_NODEID", "2"}}),
       "SLURM_NODEID=2 is out of range: SLURM_STEP_NUM_NODES=2 has node ranks 0 to 1"},
      {with(kStep, {{"SLURM_STEP_NUM_NODES", "0"}, {"SLURM_STEP_NUM_TASKS", "0"}}),
       "SLURM_STEP_NUM_NODES=0: a job needs at least one node"},
      {with(kStep, {{"SLURM_STEP_NODELIST", "node[1-3]"}}),
       "SLURM_STEP_NODELIST=node[1-3] names 3 hosts, but the step has 2 nodes"},
      {with(kStep, {{"SLURM_STEP_NODELIST", "node["}}),
       "SLURM_STEP_NODELIST: node[ is not a valid host list: a [ without a ]"},
      {with(kStep, {{"SLURM_NODEID", "x\n"}}),
       "SLURM_NODEID=x?: need a whole number from 0 to 65536"},
  }));
  CHECK_THROWS_WITH(parse({"x"}, c.environment), c.message);
  CHECK_THROWS_WITH(parse({"--nnodes", "1:1", "--nnodes", "1:2", "x"},
                          with(kStep, {{"SLURM_NODEID", "2"},
                                       {"SLURM_STEP_NUM_NODES", "3"},
                                       {"SLURM_STEP_NUM_TASKS", "3"},
                                       {"SLURM_STEP_NODELIST", "n[1-3]"}})),
                    "node rank 2 (from Slurm) is out of range: --nnodes is 2; raise it, or start "
                    "mgpu-run on 2 nodes only");
}

TEST_CASE("Slurm's GPU counts may have a type", "[scheduler]") {
  const auto count = [](const std::string& text) {
    return scheduler_in(without(with(kStep, {{"SLURM_GPUS_PER_NODE", text}}), "SLURM_GPUS_ON_NODE"))
        .gpus_per_node;
  };
  CHECK(count("8") == 8);
  CHECK(count("a100:4") == 4);
  CHECK(count("a100:2,h100:6") == 8);
  CHECK_FALSE(count("0"));
  CHECK_FALSE(count("many"));
  CHECK(scheduler_in(with(kStep, {{"SLURM_GPUS_PER_NODE", "8"}})).gpus_per_node == 4);
}

TEST_CASE("one rank is started for each GPU that Slurm allocates and is visible", "[scheduler]") {
  const auto o = parse({"x"}, kStep);
  CHECK(number_of_ranks(o, 8, 1) == 4);
  CHECK(number_of_ranks(o, 2, 1) == 2);  // CUDA_VISIBLE_DEVICES is narrower than the allocation
  CHECK(number_of_ranks(o, 0, 1) == 4);  // GPUs that are not NVIDIA's
  CHECK(number_of_ranks(parse({"-n", "1", "x"}, kStep), 8, 1) == 1);
  CHECK(number_of_ranks(parse({"--gpus", "0,1,2,3,4", "x"}, kStep), 5, 1) == 5);
}

TEST_CASE("ports for Slurm jobs are below those of outgoing connections", "[scheduler]") {
  std::set<int> ports;
  for (unsigned job = 1000; job < 1100; ++job)
    for (unsigned step = 0; step < 50; ++step) ports.insert(slurm_port(job, step));
  CHECK(ports.size() == 100 * 50);
  CHECK(*ports.begin() >= 20000);
  CHECK(*ports.rbegin() < 30000);
  CHECK(slurm_port(~0ULL, ~0ULL) >= 20000);
}

TEST_CASE("Open MPI gives the rank but no address", "[scheduler]") {
  const auto c = scheduler_in(kOpenMpi);
  CHECK(c.kind == SchedulerJob::Kind::open_mpi);
  CHECK(c.nodes == 3);
  CHECK(c.node_rank == 2);
  const auto o = parse({"x"}, with(kOpenMpi, {{"MGPU_MASTER_ADDR", "h"}}));
  CHECK(o.max_nodes == 3);
  CHECK(o.node_rank == 2);
  CHECK(o.master_addr == "h");
  CHECK(parse({"--rdzv-endpoint", "h:1", "x"}, kOpenMpi).node_rank == 2);
  CHECK_THROWS_WITH(parse({"x"}, kOpenMpi),
                    "Open MPI does not provide the address of node 0; set its host and a "
                    "free port on it: mpirun --map-by ppr:1:node -x MGPU_MASTER_ADDR=HOST -x "
                    "MGPU_MASTER_PORT=29500");
  CHECK_THROWS_WITH(
      parse({"x"}, with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})),
      Contains("mpirun started 4 processes on this node") && Contains("--map-by ppr:1:node"));
  CHECK_THROWS_WITH(parse({"x"}, without(kOpenMpi, "OMPI_COMM_WORLD_RANK")),
                    Contains("OMPI_COMM_WORLD_RANK is not set, but other Open MPI variables"));
  CHECK_THROWS_WITH(
      parse({"x"}, with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "3"}})),
      "OMPI_COMM_WORLD_RANK=3 is out of range: OMPI_COMM_WORLD_SIZE=3 has ranks 0 to 2");
}

TEST_CASE("within a Slurm job mpirun takes precedence over Slurm, and Slurm over its PMIx",
          "[scheduler]") {
  CHECK(scheduler_in(with(kStep, kOpenMpi)).kind == SchedulerJob::Kind::open_mpi);
  const auto c =
      scheduler_in(with(kStep, {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.4711.2"}}));
  CHECK(c.kind == SchedulerJob::Kind::slurm);
}

TEST_CASE("PMIx alone gives the rank", "[scheduler]") {
  const Environment second{{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-1"}};
  const auto o = parse({"--nnodes", "2", "--master-addr", "h", "x"}, second);
  CHECK(o.node_rank == 1);
  CHECK_THROWS_WITH(parse({"x"}, second), Contains("not how many; set --nnodes N"));
  CHECK_THROWS_WITH(parse({"--nnodes", "2", "x"}, second),
                    Contains("prterun -x MGPU_MASTER_ADDR=HOST"));
  CHECK(parse({"x"}, {{"PMIX_RANK", "0"}}).max_nodes == 1);
  CHECK_THROWS_WITH(parse({"x"}, {{"PMIX_NAMESPACE", "a"}}), Contains("PMIX_RANK is not"));
}

TEST_CASE("Kubernetes gives the rank if no other scheduler does", "[scheduler]") {
  const Environment pod{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
                        {"JOB_COMPLETION_INDEX", "3"},
                        {"PET_NNODES", "4"},
                        {"PET_MASTER_ADDR", "job-0.svc"}};
  const auto o = parse({"x"}, pod);
  CHECK(o.scheduler.kind == SchedulerJob::Kind::kubernetes);
  CHECK(o.node_rank == 3);
  CHECK(o.max_nodes == 4);
  CHECK(o.master_addr == "job-0.svc");
  CHECK(parse({"x"}, with(pod, {{"PET_NODE_RANK", "1"}})).node_rank == 1);
  CHECK(parse({"x"}, without(pod, "PET_NNODES")).node_rank == 0);  // the index of independent pods
  CHECK_THROWS_WITH(parse({"x"}, with(pod, {{"JOB_COMPLETION_INDEX", "-1"}})),
                    "JOB_COMPLETION_INDEX=-1: need a whole number from 0 to 65535");
}
