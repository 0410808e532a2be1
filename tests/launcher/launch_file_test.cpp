#include "launcher/options/launch_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "tests/launcher/cli_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using mgpu::tests::parse;
using mgpu::tests::TempDir;

namespace {

// The options of a recipe with this text.
Options of_recipe(const std::string& text) {
  TempDir dir;
  std::ofstream(dir.path("job.yaml")) << text;
  return parse({dir.path("job.yaml")});
}

Options of_config(const std::string& text) {
  TempDir dir;
  std::ofstream(dir.path("site.yaml")) << text;
  return parse({"--config_file", dir.path("site.yaml"), "x.py"});
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("every option can be set in the launch: section", "[launch_file]") {
  for (const auto& spec : option_table()) {
    if (spec.line_only || spec.name() == "config") continue;
    for (const auto& names : {spec.names, spec.file_keys})
      for (const auto& name : names)
        for (const auto& key : {name, with_underscores(name)}) {
          CAPTURE(key);
          const auto file = parse_recipe("launch:\n  " + key + ": 1\n", "job.yaml");
          REQUIRE(file.settings.size() == 1);
          CHECK(file.settings[0].spec == &spec);
          CHECK(file.settings[0].origin().text() == "job.yaml:2: " + key + ": 1");
        }
  }
}

TEST_CASE("lists and maps are equivalent to the text of an option", "[launch_file]") {
  const auto o = of_recipe(
      "task: sft\n"
      "launch:\n"
      "  gpus: [0, 1]\n"
      "  signals_to_handle: [SIGTERM, USR1]\n"
      "  redirects: {0: 1, 11: 3}\n"
      "  rdzv_conf: {join_timeout: 60, is_host: 1}\n"
      "  env:\n"
      "    A: 1\n"
      "    B: \"x,y=z\"\n"
      "    C: \"\"\n"
      "  set: [lr=1, a.b=2]\n"
      "  quiet: yes\n"
      "model: {launch: 3}\n");
  CHECK(o.gpus == std::vector<std::string>{"0", "1"});
  CHECK(o.signals_to_handle.size() == 2);
  CHECK(o.redirects.of(11) == 3);
  CHECK(o.rdzv_conf.at("join_timeout") == "60");
  CHECK(o.env ==
        std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", "x,y=z"}, {"C", ""}});
  CHECK(o.set == std::vector<std::string>{"lr=1", "a.b=2"});
  CHECK(o.quiet);
}

TEST_CASE("the keys of older recipes still set the restarts", "[launch_file]") {
  struct Case {
    std::string text;
    int restarts;
  };
  const auto c = GENERATE(values<Case>({
      {"  max_retries: 5\n", 5},
      {"  enable_fault_tolerance: true\n", 3},
      {"  enable_fault_tolerance: false\n", 0},
      {"  enable_fault_tolerance: true\n  max_retries: 5\n", 5},
      {"  max_restarts: 5\n  enable_fault_tolerance: false\n", 0},
      {"  max_retries: 2\n  retry_delay: 1.5\n", 2},
  }));
  CAPTURE(c.text);
  CHECK(of_recipe("launch:\n" + c.text).max_restarts == c.restarts);
}

TEST_CASE("options that a recipe sets outside launch: are not lost", "[launch_file]") {
  const auto o = of_recipe("num_gpus: 2\nmax_retries: 3\nretry_delay: 1.5\ndevice_ids: 4,5\n");
  CHECK(o.nproc.number == 2);
  CHECK(o.max_restarts == 3);
  CHECK(o.retry_delay == 1500ms);
  CHECK(o.gpus == std::vector<std::string>{"4", "5"});
  CHECK(o.origin("nproc").text().ends_with("job.yaml:1: num_gpus: 2"));
  CHECK(of_recipe("max_retries: 3\nenable_fault_tolerance: False\n").max_restarts == 0);
  CHECK(of_recipe("enable_fault_tolerance: True\n").max_restarts == 3);
  CHECK(of_recipe("num_machines: 2\nworld_size: 8\n").nproc.number == 4);
}

TEST_CASE("the retries of MultiGPUConfig are the launcher's", "[launch_file]") {
  const auto o = of_recipe("max_retries: 3\nretry_delay: 1.0\nenable_fault_tolerance: True\n");
  CHECK(o.max_restarts == 3);
  CHECK(o.retry_delay == 1000ms);
}

TEST_CASE("launch: is stronger than the same option outside it", "[launch_file]") {
  const auto o = of_recipe("num_gpus: 2\nmax_retries: 3\nlaunch:\n  nproc: 4\n");
  CHECK(o.nproc.number == 4);
  CHECK(o.max_restarts == 3);
}

TEST_CASE("a value outside launch: that means \"not set\" is skipped", "[launch_file]") {
  const std::string text =
      GENERATE("num_gpus: null\n", "gpus: 0\n", "device_ids: []\n", "gpu_ids: all\n");
  CAPTURE(text);
  CHECK(parse_recipe(text, "job.yaml").settings.empty());
}

TEST_CASE("an option outside launch: is checked like any other", "[launch_file]") {
  CHECK_THROWS_WITH(parse_recipe("num_gpus: 2\nnproc: 3\n", "j"),
                    "j:2: \"nproc\" sets the same option as \"num_gpus\" on line 1; keep one");
  CHECK_THROWS_WITH(
      parse_recipe("device_ids: [0, 1]\n", "j"),
      "j:1: device_ids: need a single value, not a list; a list can be set in launch:");
  CHECK_THROWS_WITH(of_recipe("num_gpus: two\n"), Contains("job.yaml:1: num_gpus: two: need "));
}

TEST_CASE("a JSON file is a recipe", "[launch_file]") {
  TempDir dir;
  std::ofstream(dir.path("job.json")) << "{\"task\": \"sft\", \"launch\": {\"nproc\": 2}}";
  const auto o = parse({dir.path("job.json")});
  CHECK(o.is_recipe());
  CHECK(o.nproc.number == 2);
}

TEST_CASE("a recipe without a launch: section is valid", "[launch_file]") {
  const std::string text =
      GENERATE("task: sft\n", "launch:\n", "launch: {}\n", "a: [[1], {b: 2}]\n");
  CAPTURE(text);
  CHECK(parse_recipe(text, "job.yaml").settings.empty());
}

TEST_CASE("other sections may contain any YAML", "[launch_file]") {
  const auto o = of_recipe(
      "base: &base {nproc: [1, {2: 3}], dup: 1, dup: 2}\n"
      "copy: *base\n"
      "? [a, b]\n: c\n"
      "prompt: |\n  one\n  \ttwo\n"
      "launch:\n  nproc: 2\n");
  CHECK(o.nproc.number == 2);
}

TEST_CASE("an error in a recipe is one line with file and line number", "[launch_file]") {
  struct Case {
    std::string text, message;
  };
  const auto c = GENERATE(values<Case>({
      {"launch:\n  max_restart: 1\n",
       "j:2: unknown key \"max_restart\" in launch:; did you mean \"max_restarts\"?"},
      {"launch:\n  frobnicate: 1\n",
       "j:2: unknown key \"frobnicate\" in launch:; see mgpu-run --help for the options"},
      {"launch:\n  help: 1\n",
       "j:2: \"help\" cannot be set in launch:; use --help on the command line"},
      {"launch:\n  config: x\n",
       "j:2: \"config\" cannot be set in launch:; use --config on the command line"},
      {"launch:\n\tnproc: 1\n", "j:2: this line is indented with a tab; YAML requires spaces"},
      {"a: 1\nlaunch:\n  nproc: 1\n\tgrace: 1\n",
       "j:4: this line is indented with a tab; YAML requires spaces"},
      {"launch:\n  nproc: 1\n  nproc: 2\n",
       "j:3: the key \"nproc\" is repeated, first on line 2; keep one"},
      {"launch:\n  nproc: 1\nlaunch:\n  grace: 2\n",
       "j:3: the key \"launch\" is repeated, first on line 1; keep one"},
      {"launch:\n  env: {A: 1, A: 2}\n",
       "j:2: the key \"A\" is repeated, first on line 2; keep one"},
      {"launch:\n  nproc: 1\n  nproc-per-node: 2\n",
       "j:3: \"nproc-per-node\" sets the same option as \"nproc\" on line 2; keep one"},
      {"launch:\n  nproc: [1]\n", "j:2: nproc: need a single value, not a list"},
      {"launch:\n  nproc: {a: 1}\n", "j:2: nproc: need a single value, not a map"},
      {"launch:\n  nproc:\n", "j:2: nproc: the value is missing; write \"\" for an empty string"},
      {"launch:\n  env: {A: }\n", "j:2: env: the value is missing; write \"\" for an empty string"},
      {"launch:\n  role: \"a\\0b\"\n",
       "j:2: role: contains a NUL byte, which arguments and variables cannot hold; remove it"},
      {"launch:\n  rdzv_conf: {a: \"1,b=2\"}\n",
       "j:2: rdzv_conf: an entry may not contain a comma; write the whole list as one string"},
      {"launch: 4\n", "j:1: launch: needs \"option: value\" lines below it"},
      {"launch: [nproc, 4]\n", "j:1: launch: needs \"option: value\" lines below it"},
      {"launch:\n  ? [a]\n  : 1\n", "j:2: a key in launch: must be a word, such as nproc"},
      {"x: &x 4\nlaunch:\n  nproc: *x\n",
       "j:3: nproc: need a single value, not an alias; write the value itself"},
      {"launch:\n  enable_fault_tolerance: perhaps\n",
       "j:2: enable_fault_tolerance: perhaps: need 1 or 0, true or false"},
      {"", "j:1: the file is empty; need \"key: value\" lines"},
      {"# nothing\n", "j:1: the file is empty; need \"key: value\" lines"},
      {"- a\n", "j:1: need \"key: value\" lines"},
      {"word\n", "j:1: need \"key: value\" lines"},
      {"a: 1\n---\nlaunch: {nproc: 1}\n",
       "j:2: a second YAML document starts here; only one is allowed"},
      {"launch:\n  nproc: [1\n", "j:3: invalid YAML: end of sequence flow not found"},
      {std::string("a: 1\nb: \0\n", 10), "j:2: contains a NUL byte; is this a text file?"},
  }));
  CAPTURE(c.text);
  CHECK_THROWS_WITH(parse_recipe(c.text, "j"), c.message);
}

TEST_CASE("a bad value in a file is reported with its line", "[launch_file]") {
  CHECK_THROWS_WITH(of_recipe("a: 1\nlaunch:\n  nproc: 0\n"),
                    Contains("job.yaml:3: nproc: 0: need a whole number from 1 to 4096"));
  CHECK_THROWS_WITH(of_recipe("launch:\n  env: [A]\n"), Contains("job.yaml:2: env: A: need KEY="));
}

TEST_CASE("a file that cannot be read is an error", "[launch_file]") {
  TempDir dir;
  const auto path = dir.path("job.yaml");
  SECTION("missing") {
    CHECK_THROWS_WITH(read_recipe(path), "cannot read " + path + ": No such file or directory");
  }
  SECTION("a folder") {
    std::filesystem::create_directory(path);
    CHECK_THROWS_WITH(read_recipe(path), "cannot read " + path + ": Is a directory");
  }
  SECTION("no permission") {
    std::ofstream(path) << "a: 1\n";
    ::chmod(path.c_str(), 0);
    if (::access(path.c_str(), R_OK) != 0)  // root may read everything
      CHECK_THROWS_WITH(read_recipe(path), "cannot read " + path + ": Permission denied");
  }
}

TEST_CASE("a file designed to exhaust memory is rejected at once", "[launch_file]") {
  CHECK_THROWS_WITH(
      parse_recipe(repeated("a: 1\n", 300'000), "j"),
      "j:1: the file is larger than 1024 KiB, the limit; is it a recipe or config file?");
  CHECK_THROWS_WITH(parse_recipe("a: " + repeated("[", 100'000), "j"),
                    "j:1: nested deeper than 32 levels, the limit");
  CHECK_THROWS_WITH(parse_recipe("launch: " + repeated("{a: ", 1000), "j"),
                    "j:1: nested deeper than 32 levels, the limit");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 60; ++i)
    bomb += fmt::format("a{0}: &a{0} [{1}*a{2}]\n", i, repeated(fmt::format("*a{}, ", i - 1), 8),
                        i - 1);
  CHECK(parse_recipe(bomb + "launch:\n  nproc: 2\n", "j").settings.size() == 1);
  CHECK_THROWS_WITH(parse_recipe(bomb + "launch:\n  env: *a59\n", "j"), Contains("not an alias"));
}

TEST_CASE("--config accepts a launch: section for any target", "[launch_file]") {
  CHECK(of_config("launch:\n  nproc: 3\n").nproc.number == 3);
  CHECK_THROWS_WITH(of_config("nproc: 3\n"),
                    Contains("site.yaml:1: neither a launch: section nor an "
                             "accelerate config"));
}

TEST_CASE("--config accepts a file of accelerate config", "[launch_file][accelerate]") {
  const auto o = of_config(
      "compute_environment: LOCAL_MACHINE\n"
      "debug: false\n"
      "distributed_type: MULTI_GPU\n"
      "downcast_bf16: 'no'\n"
      "enable_cpu_affinity: true\n"
      "gpu_ids: 0,1,2,3\n"
      "machine_rank: 1\n"
      "main_process_ip: 10.0.0.4\n"
      "main_process_port: 29600\n"
      "main_training_function: main\n"
      "mixed_precision: bf16\n"
      "num_machines: 2\n"
      "num_processes: 8\n"
      "rdzv_backend: static\n"
      "same_network: true\n"
      "tpu_env: []\n"
      "use_cpu: false\n");
  CHECK(o.nproc.number == 4);
  CHECK(o.max_nodes == 2);
  CHECK(o.node_rank == 1);
  CHECK(o.master_addr == "10.0.0.4");
  CHECK(o.master_port == 29600);
  CHECK(o.gpus->size() == 4);
  CHECK(o.numa_binding == NumaBinding::node);
  CHECK(o.env ==
        std::vector<std::pair<std::string, std::string>>{{"ACCELERATE_MIXED_PRECISION", "bf16"}});
  CHECK(o.notes.empty());
}

TEST_CASE("processes of accelerate without GPUs did not connect to each other",
          "[launch_file][accelerate]") {
  const std::vector<std::pair<std::string, std::string>> set{{"ACCELERATE_USE_CPU", "true"}};
  CHECK(of_config("distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n").env == set);
  CHECK(of_config("distributed_type: MULTI_CPU\nnum_processes: 2\n").env == set);
  CHECK(of_config("distributed_type: MULTI_GPU\nnum_processes: 2\nuse_cpu: true\n").notes.empty());
}

TEST_CASE("a recipe gets the accelerate config with its ZeRO stage", "[launch_file][accelerate]") {
  TempDir dir;
  const auto config = dir.path("it's zero2.yaml");
  std::ofstream(config) << "distributed_type: DEEPSPEED\n"
                           "deepspeed_config: {zero_stage: 2}\n"
                           "num_processes: 2\n"
                           "tpu_name: t\n";
  std::ofstream(dir.path("job.yaml")) << "task: sft\n";
  const auto o = parse({"--config_file", config, "--set", "lr=1", dir.path("job.yaml")});
  CHECK(o.nproc.number == 2);
  CHECK(o.set ==
        std::vector<std::string>{"deepspeed='" + dir.path("it''s zero2.yaml") + "'", "lr=1"});
  CHECK(o.notes.empty());
}

TEST_CASE("keys of accelerate that are not for a launcher are named", "[launch_file][accelerate]") {
  const auto o = of_config(
      "distributed_type: DEEPSPEED\n"
      "deepspeed_config: {zero_stage: 3}\n"
      "gpu_ids: all\n"
      "num_processes: 2\n"
      "tpu_name: t\n");
  CHECK_FALSE(o.gpus);
  REQUIRE(o.notes.size() == 2);
  CHECK_THAT(o.notes[0],
             Contains("DEEPSPEED, deepspeed_config must be set up by the training script"));
  CHECK_THAT(o.notes[1], Contains("ignored: tpu_name"));
  CHECK_THROWS_WITH(of_config("num_processes: many\n"),
                    Contains("site.yaml:1: num_processes: many: need a whole number"));
}

TEST_CASE("a launch file sets what happens after each kind of failure", "[launch_file]") {
  const auto options = of_recipe("launch:\n  on_failure: {import_error: restart, nan: give_up}\n");
  CHECK(options.on_failure.of(FailureKind::import_error) == FailurePolicy::restart);
  CHECK(options.on_failure.of(FailureKind::nan) == FailurePolicy::give_up);
  CHECK_FALSE(options.on_failure.is_chosen(FailureKind::signal));

  SECTION("and the command line overrides it for a kind") {
    TempDir dir;
    std::ofstream(dir.path("job.yaml"))
        << "launch:\n  on_failure: {import_error: restart, nan: give_up}\n";
    const auto both = parse({"--on-failure", "nan=restart", dir.path("job.yaml")});
    CHECK(both.on_failure.of(FailureKind::nan) == FailurePolicy::restart);
    CHECK(both.on_failure.of(FailureKind::import_error) == FailurePolicy::restart);
  }
  SECTION("a mistake is one line with the place and the valid names") {
    CHECK_THROWS_WITH(of_recipe("launch:\n  on_failure: {nan: retry}\n"),
                      Contains("job.yaml:2: on_failure") &&
                          Contains("where POLICY is one of restart, restart_changed"));
    CHECK_THROWS_WITH(of_recipe("launch:\n  on_failure: {bug: restart}\n"),
                      Contains("where KIND is one of exec_failure"));
  }
}
