#include "launcher/plan/dry_run.hpp"

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

namespace {

Options options_with_logs() {
  Options options;
  options.signals_to_handle = {SIGTERM, SIGINT};
  options.log_dir = "/logs";
  return options;
}

struct Plan {
  Options options = options_with_logs();
  CommandLine command{{"/usr/bin/python3", "-u", "train.py", "--name", "it's $5"}, true};
  Placement placement{.nproc = 2, .world_size = 2};
  PlanFacts facts;

  std::string text() const {
    const auto attempt = planned_attempt(options);
    return dry_run_text(options, placement, attempt,
                        make_rank_specs(options, command, placement, attempt, facts));
  }
  nlohmann::json json() const {
    const auto attempt = planned_attempt(options);
    return nlohmann::json::parse(dry_run_json(
        options, placement, attempt, make_rank_specs(options, command, placement, attempt, facts)));
  }
};

}  // namespace

TEST_CASE("a dry run shows what ranks have in common once and the rest by rank", "[dry_run]") {
  Plan plan;
  plan.facts.gpus = {"0", "1"};
  plan.facts.bindings = {{{0, 1, 2, 3}, {0}}, {{4, 5, 6, 7}, {1}}};
  CHECK(plan.text() == R"(2 of 2 ranks, on node 0 of 1
master 127.0.0.1, port chosen at start, store served by mgpu-run

rank  local rank  device  cores  memory  logs
0     0           GPU 0   0-3    0       /logs/none_XXXXXX/attempt_0/0
1     1           GPU 1   4-7    1       /logs/none_XXXXXX/attempt_0/1

command of every rank
  /usr/bin/python3 -u train.py --name 'it'\''s $5'

environment of every rank
  GROUP_RANK=0
  ROLE_NAME=default
  WORLD_SIZE=2
  LOCAL_WORLD_SIZE=2
  GROUP_WORLD_SIZE=1
  ROLE_WORLD_SIZE=2
  MASTER_ADDR=127.0.0.1
  MASTER_PORT=chosen at start
  TORCHELASTIC_RESTART_COUNT=0
  TORCHELASTIC_MAX_RESTARTS=0
  TORCHELASTIC_RUN_ID=none
  TORCHELASTIC_USE_AGENT_STORE=True
  MGPU_OOM_COUNT=0
  MGPU_LEADER_ADDR=127.0.0.1
  TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT
  TORCH_NCCL_ASYNC_ERROR_HANDLING=1
  OMP_NUM_THREADS=1

environment by rank
  rank  RANK  LOCAL_RANK  ROLE_RANK  TORCHELASTIC_ERROR_FILE
  0     0     0           0          /logs/none_XXXXXX/attempt_0/0/error.json
  1     1     1           1          /logs/none_XXXXXX/attempt_0/1/error.json
)");
}

TEST_CASE("a dry run shows commands by rank if they differ", "[dry_run]") {
  Plan plan;
  plan.options.master_port = 29500;
  plan.options.rank0_store = true;
  plan.options.log_dir = "/dev/null";
  plan.options.virtual_local_rank = true;
  plan.facts.gpus = {"4", "GPU-aa"};
  plan.command = {{"prog", "--local-rank=${local_rank}"}};
  plan.placement = {.nproc = 2, .node_rank = 1, .nodes = 2, .base_rank = 2, .world_size = 4};
  const auto text = plan.text();
  CHECK(text.starts_with(R"(2 of 4 ranks, on node 1 of 2
master 127.0.0.1, port 29500, store served by rank 0

rank  local rank  device      cores  memory  logs
2     0           GPU 4       -      -       -
3     1           GPU GPU-aa  -      -       -

command by rank
  rank 2  prog --local-rank=0
  rank 3  prog --local-rank=1
)"));
  CHECK(text.ends_with(R"(
environment by rank
  rank  RANK  ROLE_RANK  CUDA_VISIBLE_DEVICES
  2     2     2          4
  3     3     3          GPU-aa
)"));
}

TEST_CASE("a dry run of one rank shows nothing by rank", "[dry_run]") {
  Plan plan;
  plan.placement = {.nproc = 1, .world_size = 1};
  CHECK_THAT(plan.text(), !Catch::Matchers::Contains("by rank"));
  CHECK_THAT(plan.text(), Catch::Matchers::Contains("  RANK=0\n"));
}

TEST_CASE("a dry run shows which variables a rank does not inherit", "[dry_run]") {
  Plan plan;
  auto specs = make_rank_specs(plan.options, plan.command, plan.placement, {}, {});
  for (auto& spec : specs) spec.env.emplace_back("NOTIFY_SOCKET", std::nullopt);
  CHECK_THAT(dry_run_text(plan.options, plan.placement, {}, specs),
             Catch::Matchers::Contains("  NOTIFY_SOCKET is removed\n"));
  const auto json = nlohmann::json::parse(dry_run_json(plan.options, plan.placement, {}, specs));
  CHECK(json["ranks"][0]["env"]["NOTIFY_SOCKET"].is_null());
}

TEST_CASE("a dry run can be printed as JSON", "[dry_run]") {
  Plan plan;
  plan.facts.bindings = {{{0, 1, 2, 3}, {0}}, {{4, 5, 6, 7}, {1}}};
  auto all = plan.json();
  CHECK(all["master_port"].is_null());
  CHECK(all["store"] == "mgpu-run");
  REQUIRE(all["ranks"].size() == 2);
  auto rank = all["ranks"][1];
  CHECK(rank["argv"] == plan.command.argv);
  CHECK(rank["env"]["RANK"] == "1");
  CHECK(rank["env"]["MASTER_PORT"] == "chosen at start");
  CHECK(rank["device"] == "cpu");
  CHECK(rank["cores"] == "4-7");
  CHECK(rank["memory_nodes"] == "1");
  CHECK(rank["log_dir"] == "/logs/none_XXXXXX/attempt_0/1");

  plan.options.master_port = 29500;
  all = plan.json();
  CHECK(all["master_port"] == 29500);
  CHECK(all["ranks"][0]["env"]["MASTER_PORT"] == "29500");

  SECTION("also if an argument is not UTF-8") {
    plan.command.argv.push_back("\xff");
    CHECK(plan.json()["ranks"][0]["argv"].size() == plan.command.argv.size());
  }
}

TEST_CASE("words are quoted for a shell", "[dry_run]") {
  CHECK(shell_word("a-b_c./:=,+@%^9") == "a-b_c./:=,+@%^9");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("a b") == "'a b'");
  CHECK(shell_word("${x}") == "'${x}'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("~") == "'~'");
  CHECK(shell_word("\x1b[2J'\\\n") == "$'\\x1b[2J\\'\\\\\\x0a'");
}

TEST_CASE("values that are chosen at the start are not invented", "[dry_run]") {
  Options options;
  CHECK(planned_attempt(options).master_port == 0);
  CHECK_THAT(planned_attempt(options).log_dir, Catch::Matchers::EndsWith("/mgpu_XXXXXX/attempt_0"));
  options.log_dir = "/dev/null";
  CHECK(planned_attempt(options).log_dir.empty());
  options.master_addr = "10.0.0.4";
  CHECK(planned_attempt(options).master_addr == "10.0.0.4");
}

TEST_CASE("a job's log folder is in the log folder of the command line, whatever the job's id is",
          "[dry_run]") {
  const auto folder = [](std::string id) {
    Options options;
    options.log_dir = "/logs";
    options.rdzv_id = std::move(id);
    return planned_attempt(options).log_dir;
  };
  CHECK(folder("Run-7.b_c") == "/logs/Run-7.b_c_XXXXXX/attempt_0");
  CHECK(folder("../../x") == "/logs/___.._x_XXXXXX/attempt_0");
  CHECK(folder("..") == "/logs/___XXXXXX/attempt_0");
  CHECK(folder("team/run 7\n") == "/logs/team_run_7__XXXXXX/attempt_0");
  CHECK(folder(std::string(5000, 'x')) == "/logs/" + std::string(100, 'x') + "_XXXXXX/attempt_0");
}

TEST_CASE("a dry run shows the values of a scheduler and their variables", "[dry_run]") {
  Plan plan;
  CHECK(scheduler_text(plan.options.scheduler).empty());
  CHECK_FALSE(plan.json().contains("cluster"));
  plan.options.scheduler = {
      .kind = SchedulerJob::Kind::slurm,
      .found = {{"nodes", "2", "SLURM_STEP_NUM_NODES"}, {"node rank", "1", "SLURM_NODEID"}}};
  CHECK(scheduler_text(plan.options.scheduler) == R"(Slurm provides
  nodes      2  SLURM_STEP_NUM_NODES
  node rank  1  SLURM_NODEID

)");
  CHECK(plan.json()["cluster"][1]["value"] == "1");
  CHECK(plan.json()["cluster"][1]["from"] == "SLURM_NODEID");
}
