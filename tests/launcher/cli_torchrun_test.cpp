#include <signal.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/option_table.hpp"
#include "tests/launcher/cli_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using mgpu::tests::Environment;
using mgpu::tests::parse;

namespace {

std::string words(const StreamMap& map) {
  return fmt::format("{} {}", map.all, map.by_rank);
}

// One torchrun flag: its spelling, its variable, and its required effect on the options.
struct Flag {
  std::string name;
  std::string value;  // empty: a flag without a value
  std::string variable;
  std::string (*shown)(const Options&);
  std::string expected;
};

const std::vector<Flag>& torchrun_flags() {
  using O = const Options&;
  static const std::vector<Flag> flags{
      {"nnodes", "2:4", "PET_NNODES",
       [](O o) { return fmt::format("{}:{}", o.min_nodes, o.max_nodes); }, "2:4"},
      {"nproc-per-node", "8", "PET_NPROC_PER_NODE",
       [](O o) { return std::to_string(o.nproc.number); }, "8"},
      {"rdzv-backend", "c10d", "PET_RDZV_BACKEND", [](O o) { return o.rdzv_backend; }, "c10d"},
      {"rdzv-endpoint", "h:1", "PET_RDZV_ENDPOINT", [](O o) { return o.rdzv_endpoint; }, "h:1"},
      {"rdzv-id", "j7", "PET_RDZV_ID", [](O o) { return o.rdzv_id; }, "j7"},
      {"rdzv-conf", "a=1,b=x", "PET_RDZV_CONF",
       [](O o) { return o.rdzv_conf.at("a") + o.rdzv_conf.at("b"); }, "1x"},
      {"standalone", "", "PET_STANDALONE", [](O o) { return fmt::format("{}", o.standalone); },
       "true"},
      {"max-restarts", "3", "PET_MAX_RESTARTS", [](O o) { return std::to_string(o.max_restarts); },
       "3"},
      {"monitor-interval", "5.5", "PET_MONITOR_INTERVAL", [](O o) { return o.notes.at(0); },
       "--monitor-interval is ignored; nothing here polls"},
      {"start-method", "fork", "PET_START_METHOD", [](O o) { return o.notes.at(0); },
       "--start-method is ignored; ranks are programs of their own"},
      {"event-log-handler", "console", "PET_EVENT_LOG_HANDLER", [](O o) { return o.notes.at(0); },
       "--event-log-handler console is ignored; see --report for a JSON report"},
      {"role", "trainer", "PET_ROLE", [](O o) { return o.role; }, "trainer"},
      {"module", "", "PET_MODULE", [](O o) { return fmt::format("{}", o.module); }, "true"},
      {"no-python", "", "PET_NO_PYTHON", [](O o) { return fmt::format("{}", o.no_python); },
       "true"},
      {"run-path", "", "PET_RUN_PATH",
       [](O o) { return fmt::format("{} {}", o.run_path, o.notes.size()); }, "true 1"},
      {"log-dir", "/dev/null", "PET_LOG_DIR", [](O o) { return o.log_dir.value(); }, "/dev/null"},
      {"redirects", "3", "PET_REDIRECTS", [](O o) { return words(o.redirects); },
       words({.all = 3})},
      {"tee", "0:1,11:3", "PET_TEE", [](O o) { return words(o.tee); },
       words({.by_rank = {{0, 1}, {11, 3}}})},
      {"log-line-prefix-template", "[${rank}]", "PET_LOG_LINE_PREFIX_TEMPLATE",
       [](O o) { return o.prefix_template; }, "[${rank}]"},
      {"local-ranks-filter", "0,12", "PET_LOCAL_RANKS_FILTER",
       [](O o) { return fmt::format("{}", o.local_ranks_filter); }, "[0, 12]"},
      {"duplicate-stdout-filters", "a,,b,c", "PET_DUPLICATE_STDOUT_FILTERS",
       [](O o) { return fmt::format("{}", fmt::join(o.stdout_filters, "|")); }, "a,b|c"},
      {"duplicate-stderr-filters", "x", "PET_DUPLICATE_STDERR_FILTERS",
       [](O o) { return o.stderr_filters.at(0); }, "x"},
      {"node-rank", "1", "PET_NODE_RANK", [](O o) { return std::to_string(o.node_rank); }, "1"},
      {"master-addr", "10.0.0.4", "PET_MASTER_ADDR", [](O o) { return o.master_addr.value(); },
       "10.0.0.4"},
      {"master-port", "29511", "PET_MASTER_PORT",
       [](O o) { return std::to_string(o.master_port.value()); }, "29511"},
      {"local-addr", "10.0.0.5", "PET_LOCAL_ADDR", [](O o) { return o.local_addr; }, "10.0.0.5"},
      {"logs-specs", "mine", "", [](O o) { return o.notes.at(0); },
       "--logs-specs is ignored; see --log-dir, --redirects and --tee"},
      {"numa-binding", "core-complex", "",
       [](O o) { return fmt::format("{}", o.numa_binding == NumaBinding::core_complex); }, "true"},
      {"signals-to-handle", "SIGTERM,usr1", "PET_SIGNALS_TO_HANDLE",
       [](O o) { return fmt::format("{}", o.signals_to_handle == std::vector{SIGTERM, SIGUSR1}); },
       "true"},
      {"shutdown-timeout", "4", "PET_SHUTDOWN_TIMEOUT",
       [](O o) { return std::to_string(o.grace.count()); }, "4000"},
      {"virtual-local-rank", "", "PET_VIRTUAL_LOCAL_RANK",
       [](O o) { return fmt::format("{}", o.virtual_local_rank); }, "true"},
      {"print-completion", "bash", "", [](O o) { return o.completion_shell; }, "bash"},
  };
  return flags;
}

std::vector<std::string> line_of(const Flag& flag, const std::string& name, bool equals) {
  if (flag.value.empty()) return {"--" + name, "x.py"};
  if (equals) return {"--" + name + "=" + flag.value, "x.py"};
  return {"--" + name, flag.value, "x.py"};
}

}  // namespace

TEST_CASE("every torchrun flag has its torchrun meaning", "[cli][torchrun]") {
  for (const auto& flag : torchrun_flags()) {
    CAPTURE(flag.name);
    for (const bool equals : {false, true}) {
      CHECK(flag.shown(parse(line_of(flag, flag.name, equals))) == flag.expected);
      CHECK(flag.shown(parse(line_of(flag, with_underscores(flag.name), equals))) == flag.expected);
    }
  }
}

TEST_CASE("the table marks exactly torchrun's flags as torchrun's", "[cli][torchrun]") {
  std::vector<std::string> known, expected{"help"};
  for (const auto& spec : option_table())
    if (!spec.torchrun.empty()) known.push_back(spec.torchrun);
  for (const auto& flag : torchrun_flags()) expected.push_back(flag.name);
  std::sort(known.begin(), known.end());
  std::sort(expected.begin(), expected.end());
  CHECK(known == expected);
}

TEST_CASE("torchrun's PET_ variables are read and the command line overrides them",
          "[cli][torchrun]") {
  for (const auto& flag : torchrun_flags()) {
    if (flag.variable.empty()) continue;
    CAPTURE(flag.variable);
    const auto value = flag.value.empty() ? "1" : flag.value;
    CHECK(flag.shown(parse({"x.py"}, {{flag.variable, value}})) == flag.expected);
    CHECK(flag.shown(parse(line_of(flag, flag.name, true), {{flag.variable, "no such value"}})) ==
          flag.expected);
  }
}

TEST_CASE("every standalone job has its own run id", "[cli][torchrun]") {
  const auto id = parse({"--standalone", "--rdzv-id", "mine", "x.py"}).rdzv_id;
  CHECK(id.size() == 32);
  CHECK(id != parse({"--standalone", "--rdzv-id", "mine", "x.py"}).rdzv_id);
  CHECK(parse({"--rdzv-id", "mine", "x.py"}).rdzv_id == "mine");
}

TEST_CASE("variables of flags, empty variables and older names are handled", "[cli][torchrun]") {
  SECTION("the variable of a flag is a number") {
    CHECK_FALSE(parse({"x.py"}, {{"PET_STANDALONE", "0"}}).standalone);
    CHECK(parse({"x.py"}, {{"PET_STANDALONE", "2"}}).standalone);
    CHECK_THROWS_WITH(parse({"x.py"}, {{"PET_STANDALONE", "maybe"}}),
                      "PET_STANDALONE=maybe: need 1 or 0, true or false");
  }
  SECTION("an empty variable counts as unset") {
    CHECK(parse({"x.py"}, {{"PET_NNODES", ""}}).max_nodes == 1);
  }
  SECTION("the two older names work, and the newer ones override them") {
    CHECK(parse({"x.py"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}}).grace == Milliseconds(7000));
    CHECK(parse({"x.py"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}, {"PET_SHUTDOWN_TIMEOUT", "8"}})
              .grace == Milliseconds(8000));
    CHECK(parse({"x.py"}, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "a"}}).prefix_template == "a");
  }
  SECTION("the null event handler causes no note") {
    CHECK(parse({"--event-log-handler", "null", "x.py"}).notes.empty());
  }
}

TEST_CASE("short flags of torchrun and of mgpu-run are read", "[cli][torchrun]") {
  CHECK(parse({"-n4", "x.py"}).nproc.number == 4);
  CHECK(parse({"-n", "4", "x.py"}).nproc.number == 4);
  CHECK(parse({"-n=4", "x.py"}).nproc.number == 4);
  CHECK(parse({"-N", "2", "x.py"}).min_nodes == 2);
  CHECK(parse({"-r3", "-t", "1", "x.py"}).redirects.all == 3);
  CHECK(parse({"-mn4", "pkg"}).nproc.number == 4);
  CHECK(parse({"-m", "-r", "0:1", "pkg"}).target == "pkg");
  CHECK_THROWS_WITH(parse({"-x", "y"}), "unknown option -x; see --help");
}

TEST_CASE("the program name selects the defaults", "[cli][torchrun]") {
  SECTION("mgpu-run counts the devices") {
    const auto options = parse({"x.py"});
    CHECK(options.nproc.kind == RankCount::Kind::unset);
    CHECK_FALSE(options.append_local_rank);
  }
  SECTION("torchrun starts one rank") {
    CHECK(parse({"x.py"}, {}, "/usr/bin/torchrun").nproc == RankCount{RankCount::Kind::number, 1});
    CHECK(parse({"-n", "2", "x.py"}, {}, "torchrun").nproc.number == 2);
  }
  SECTION("torch-distributed-launch passes --local-rank to the script unless --use-env is set") {
    CHECK(parse({"x.py"}, {}, "bin/torch-distributed-launch").append_local_rank);
    CHECK_FALSE(parse({"--use-env", "x.py"}, {}, "torch-distributed-launch").append_local_rank);
  }
  SECTION("--no-use-env passes it under any name") {
    CHECK(parse({"--no_use_env", "x.py"}).append_local_rank);
  }
}

TEST_CASE("accelerate launch's option names are accepted", "[cli][accelerate]") {
  const auto options = parse({"--num_processes", "8", "--num_machines=2", "--machine_rank", "1",
                              "--main_process_ip", "h0", "--main_process_port", "29600", "x.py"});
  CHECK(options.nproc.number == 4);  // accelerate counts the processes of all machines
  CHECK(options.max_nodes == 2);
  CHECK(options.node_rank == 1);
  CHECK(options.master_addr == "h0");
  CHECK(options.master_port == 29600);
  CHECK_THROWS_WITH(parse({"--num_processes=7", "--nnodes=2", "x.py"}),
                    Catch::Matchers::Contains("--num_processes 7: counts all 2 nodes together"));
}
