#include "launcher/plan/plan.hpp"

#include <csignal>
#include <map>

#include "rendezvous/contract.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using mgpu::rendezvous::Contract;
using Strings = std::vector<std::string>;

namespace {

using ExpectedVariables = std::map<std::string, std::optional<std::string>>;

ExpectedVariables variables_of(const RankSpec& spec) {
  ExpectedVariables variables(spec.env.begin(), spec.env.end());
  REQUIRE(variables.size() == spec.env.size());  // no variable is set twice
  return variables;
}

Contract read_contract(const RankSpec& spec) {
  const auto variables = variables_of(spec);
  return Contract::from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second->c_str();
  });
}

Options some_options() {
  Options options;
  options.signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  return options;
}

Attempt some_attempt() {
  return {.number = 2, .oom_count = 1, .master_port = 40001, .log_dir = "/logs/attempt_2"};
}

Strings numbered(int n) {
  Strings names;
  for (int i = 0; i < n; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

TEST_CASE("every rank gets its ranks and sizes, for 1 to 64 ranks on any node", "[plan]") {
  const int nproc = GENERATE(range(1, 65));
  const int node_rank = GENERATE(0, 1, 3);
  CAPTURE(nproc, node_rank);
  auto options = some_options();
  options.max_restarts = 3;
  options.role = "trainer";
  const Placement placement{.nproc = nproc,
                            .node_rank = node_rank,
                            .nodes = 4,
                            .base_rank = node_rank * nproc,
                            .world_size = 4 * nproc};
  PlanFacts facts;
  facts.run_id = "j1";
  const auto specs = make_rank_specs(options, {{"prog"}}, placement, some_attempt(), facts);
  REQUIRE(specs.size() == static_cast<size_t>(nproc));
  for (int i = 0; i < nproc; ++i) {
    Contract expected;
    expected.rank = node_rank * nproc + i;
    expected.local_rank = i;
    expected.group_rank = node_rank;
    expected.role_rank = expected.rank;
    expected.role_name = "trainer";
    expected.world_size = 4 * nproc;
    expected.local_world_size = nproc;
    expected.group_world_size = 4;
    expected.role_world_size = 4 * nproc;
    expected.master_port = 40001;
    expected.restart_count = 2;
    expected.max_restarts = 3;
    expected.run_id = "j1";
    expected.error_file = "/logs/attempt_2/" + std::to_string(i) + "/error.json";
    expected.oom_count = 1;
    CHECK(read_contract(specs[i]) == expected);
    CHECK(specs[i].rank == expected.rank);
    CHECK(specs[i].local_rank == i);
    CHECK(specs[i].log_dir == "/logs/attempt_2/" + std::to_string(i));
    CHECK(specs[i].device == "cpu");
    CHECK(variables_of(specs[i]).count("OMP_NUM_THREADS") == (nproc > 1 ? 1 : 0));
  }
}

TEST_CASE("the environment of a rank is the one of torchrun", "[plan]") {
  auto options = some_options();
  PlanFacts facts;
  facts.job_cookie = "c0";
  const Placement two{.nproc = 2, .world_size = 2};
  auto attempt = some_attempt();
  const auto first = [&] {
    return variables_of(make_rank_specs(options, {{"prog"}}, two, attempt, facts).front());
  };

  SECTION("with everything unset") {
    const ExpectedVariables expected = {
        {"RANK", "0"},
        {"LOCAL_RANK", "0"},
        {"GROUP_RANK", "0"},
        {"ROLE_RANK", "0"},
        {"ROLE_NAME", "default"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"GROUP_WORLD_SIZE", "1"},
        {"ROLE_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", "40001"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_MAX_RESTARTS", "0"},
        {"TORCHELASTIC_RUN_ID", "none"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/logs/attempt_2/0/error.json"},
        {"MGPU_OOM_COUNT", "1"},
        {"MGPU_LEADER_ADDR", "127.0.0.1"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"PYTORCH_ALLOC_CONF", "expandable_segments:True"},
        {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"},
        {"OMP_NUM_THREADS", "1"},
        {"MGPU_JOB_COOKIE", "c0"}};
    CHECK(first() == expected);
  }
  SECTION("variables that the user has set are inherited") {
    facts.omp_num_threads_set = facts.nccl_async_error_handling_set = true;
    CHECK(first().count("OMP_NUM_THREADS") == 0);
    CHECK(first().count("TORCH_NCCL_ASYNC_ERROR_HANDLING") == 0);
  }
  SECTION("the allocator is configured after a lack of GPU memory, unless the user has done it") {
    const auto configured = [&](int oom_count) {
      auto next = some_attempt();
      next.oom_count = oom_count;
      const auto variables =
          variables_of(make_rank_specs(options, {{"prog"}}, two, next, facts).front());
      return variables.count("PYTORCH_ALLOC_CONF") + variables.count("PYTORCH_CUDA_ALLOC_CONF");
    };
    CHECK(configured(0) == 0);
    CHECK(configured(1) == 2);
    CHECK(configured(2) == 2);
    options.env = {{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512"}};
    CHECK(configured(1) == 1);
    CHECK(first().at("PYTORCH_CUDA_ALLOC_CONF") == "max_split_size_mb:512");
    options.env.clear();
    facts.allocator_set = true;
    CHECK(configured(1) == 0);
  }
  SECTION("with a folder for them, PyTorch's records of NCCL can be requested") {
    attempt.nccl_dir = "/logs/attempt_2/nccl";
    CHECK(first().at("TORCH_NCCL_DEBUG_INFO_PIPE_FILE") == "/logs/attempt_2/nccl/rank_");
    CHECK(first().at("TORCH_NCCL_DEBUG_INFO_TEMP_FILE") == "/logs/attempt_2/nccl/nccl_trace_rank_");
    facts.nccl_record_set = true;
    CHECK(first().count("TORCH_NCCL_DEBUG_INFO_PIPE_FILE") == 0);
  }
  SECTION("--rank0-store lets rank 0 bind the port") {
    options.rank0_store = true;
    CHECK(first().at("TORCHELASTIC_USE_AGENT_STORE") == "False");
  }
  SECTION("without a log folder there is no error file") {
    const auto spec = make_rank_specs(options, {{"prog"}}, two, {}, facts).front();
    CHECK(variables_of(spec).at("TORCHELASTIC_ERROR_FILE") == "");
    CHECK(spec.log_dir.empty());
  }
  SECTION("--env comes last but cannot replace MGPU_JOB_COOKIE") {
    options.env = {{"OMP_NUM_THREADS", "8"}, {"A", "1"}, {"A", "2"}, {"MGPU_JOB_COOKIE", "x"}};
    CHECK(first().at("OMP_NUM_THREADS") == "8");
    CHECK(first().at("A") == "2");
    CHECK(first().at("MGPU_JOB_COOKIE") == "c0");
  }
}

TEST_CASE("ranks see the GPUs that they are to use", "[plan]") {
  auto options = some_options();
  PlanFacts facts;
  facts.gpus = {"4", "5", "6", "7"};
  facts.cuda_visible_devices = "4,5,6,7";
  const auto cuda = [&](int nproc) {
    std::vector<std::optional<std::string>> shown;
    for (const auto& spec : make_rank_specs(
             options, {{"prog"}}, {.nproc = nproc, .world_size = nproc}, some_attempt(), facts)) {
      const auto variables = variables_of(spec);
      const auto found = variables.find("CUDA_VISIBLE_DEVICES");
      shown.push_back(found == variables.end() ? std::nullopt : found->second);
      CHECK(variables.at("LOCAL_RANK") ==
            std::to_string(options.virtual_local_rank ? 0 : spec.local_rank));
      CHECK(variables.at("RANK") == std::to_string(spec.local_rank));
    }
    return shown;
  };
  using Shown = std::vector<std::optional<std::string>>;

  SECTION("the inherited list is unchanged") {
    CHECK(cuda(2) == Shown{std::nullopt, std::nullopt});
  }
  SECTION("--gpus replaces it") {
    options.gpus = Strings{"1", "3"};
    facts.gpus = {"1", "3"};
    CHECK(cuda(2) == Shown{"1,3", "1,3"});
  }
  SECTION("a virtual local rank sees only its own GPU and has LOCAL_RANK 0") {
    options.virtual_local_rank = true;
    CHECK(cuda(4) == Shown{"4", "5", "6", "7"});
  }
  SECTION("also with --gpus") {
    options.virtual_local_rank = true;
    options.gpus = Strings{"1", "3"};
    facts.gpus = {"1", "3"};
    CHECK(cuda(2) == Shown{"1", "3"});
  }
  SECTION("shared GPUs are assigned in turn") {
    options.virtual_local_rank = options.oversubscribe = true;
    facts.gpus = {"0", "1"};
    CHECK(cuda(5) == Shown{"0", "1", "0", "1", "0"});
  }
  SECTION("without a GPU each rank gets one entry of the inherited list") {
    options.virtual_local_rank = true;
    facts.gpus.clear();
    facts.cuda_visible_devices = "GPU-a,GPU-b";
    CHECK(cuda(3) == Shown{"GPU-a", "GPU-b", std::nullopt});
    facts.cuda_visible_devices = "";
    CHECK(cuda(1) == Shown{std::nullopt});
  }
}

TEST_CASE("64 virtual local ranks see 64 GPUs", "[plan]") {
  auto options = some_options();
  options.virtual_local_rank = true;
  PlanFacts facts;
  facts.gpus = numbered(64);
  const auto specs =
      make_rank_specs(options, {{"prog"}}, {.nproc = 64, .world_size = 64}, {}, facts);
  for (const auto& spec : specs) {
    CHECK(variables_of(spec).at("CUDA_VISIBLE_DEVICES") == std::to_string(spec.local_rank));
    CHECK(spec.device == "GPU " + std::to_string(spec.local_rank));
  }
}

TEST_CASE("macros in arguments are replaced by the numbers of the rank", "[plan]") {
  struct Case {
    const char* text;
    const char* expected;
  };
  const auto [text, expected] = GENERATE(values<Case>({
      {"--local-rank=${local_rank}", "--local-rank=3"},
      {"$local_rank", "3"},
      {"$local_rank.log", "3.log"},
      {"${rank}/${node_rank}/${world_size}", "11/1/16"},
      {"${local_rank}${local_rank}", "33"},
      // Not macros: unchanged, as in torchrun.
      {"$local_ranks", "$local_ranks"},
      {"$local_rank_0", "$local_rank_0"},
      {"$LOCAL_RANK", "$LOCAL_RANK"},
      {"${local_rank", "${local_rank"},
      {"${ local_rank }", "${ local_rank }"},
      {"$rank $HOME ${x} $5 $", "$rank $HOME ${x} $5 $"},
      {"", ""},
      // Two dollars before a macro stand for one, as in torchrun.
      {"$${local_rank}", "${local_rank}"},
      {"$$local_rank", "$local_rank"},
      {"$$${local_rank}", "$3"},
      {"$$$$local_rank", "$$local_rank"},
      {"$${rank}", "${rank}"},
      // Two dollars elsewhere stay two; torchrun would make them one.
      {"echo $$", "echo $$"},
      {"pa$$word", "pa$$word"},
      {"$$rank", "$$rank"},
  }));
  CAPTURE(text);
  const Placement second{.nproc = 8, .node_rank = 1, .nodes = 2, .base_rank = 8, .world_size = 16};
  CHECK(expand_macros(text, second, 3) == expected);
}

TEST_CASE("macros are replaced in arguments, not in the program name", "[plan]") {
  const auto specs = make_rank_specs(some_options(), {{"/bin/$local_rank", "-u", "x${rank}.py"}},
                                     {.nproc = 2, .world_size = 2}, {}, {});
  CHECK(specs[1].argv == Strings{"/bin/$local_rank", "-u", "x1.py"});
}

TEST_CASE("a rank gets the binding that was planned for it", "[plan]") {
  PlanFacts facts;
  facts.bindings = {{{0, 1}, {0}}, {{2, 3}, {1}}};
  const auto specs =
      make_rank_specs(some_options(), {{"prog"}}, {.nproc = 2, .world_size = 2}, {}, facts);
  CHECK(specs[0].binding == facts.bindings[0]);
  CHECK(specs[1].binding == facts.bindings[1]);
}

TEST_CASE("the default number of ranks is the number of GPUs", "[plan]") {
  using enum RankCount::Kind;
  struct Case {
    RankCount nproc;
    int gpus;
    int expected;
  };
  const auto [nproc, gpus, expected] = GENERATE(values<Case>({
      {{unset, 0}, 8, 8},
      {{unset, 0}, 0, 1},
      {{number, 3}, 8, 3},
      {{number, 8}, 8, 8},
      {{number, 64}, 0, 64},
      {{gpu, 0}, 2, 2},
      {{cpu, 0}, 2, 48},
      {{cpu, 0}, 0, 48},
      {{automatic, 0}, 2, 2},
      {{automatic, 0}, 0, 48},
  }));
  Options options;
  options.nproc = nproc;
  CHECK(number_of_ranks(options, gpus, 48) == expected);
}

TEST_CASE("more ranks than GPUs is a usage error unless they are shared", "[plan]") {
  Options options;
  options.nproc = {RankCount::Kind::number, 4};
  CHECK_THROWS_WITH(
      number_of_ranks(options, 2, 8),
      "--nproc 4 needs 4 GPUs, found 2; use --nproc 2, --oversubscribe to share GPUs, "
      "or CUDA_VISIBLE_DEVICES= to run on CPUs");
  options.oversubscribe = true;
  CHECK(number_of_ranks(options, 2, 8) == 4);
  options.nproc = {RankCount::Kind::gpu, 0};
  CHECK_THROWS_WITH(number_of_ranks(options, 0, 8), Catch::Matchers::Contains("no visible GPU"));
}
