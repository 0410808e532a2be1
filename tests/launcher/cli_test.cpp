#include <signal.h>
#include <stdlib.h>

#include <fstream>

#include "launcher/options/help.hpp"
#include "launcher/options/option_table.hpp"
#include "tests/launcher/cli_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::tests::Environment;
using mgpu::tests::parse;
using mgpu::tests::TempDir;

namespace {

using Words = std::vector<std::string>;

std::string write_file(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("without options everything has its default", "[cli]") {
  const auto options = parse({"train.py"});
  CHECK(options.command == Command::run);
  CHECK(options.target == "train.py");
  CHECK(options.args.empty());
  CHECK(options.grace == Milliseconds(30'000));
  CHECK(options.max_restarts == 0);
  CHECK(options.signals_to_handle == std::vector{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  CHECK(options.notes.empty());
}

TEST_CASE("arguments after TARGET belong to the program", "[cli]") {
  const Words theirs{"--nproc", "3", "-x", "--", "--no-such-option", "--help"};
  Words line{"-n", "4", "x.py"};
  SECTION("unchanged") {}
  SECTION("also after --") {
    line.insert(line.begin() + 2, "--");
  }
  line.insert(line.end(), theirs.begin(), theirs.end());
  const auto options = parse(line);
  CHECK(options.nproc.number == 4);
  CHECK(options.target == "x.py");
  CHECK(options.args == theirs);
}

TEST_CASE(
    "an option of mgpu-run after a recipe is not passed to mgpu-train, which does not have it",
    "[cli]") {
  const TempDir dir;
  const auto recipe = write_file(dir.path("job.yaml"), "lr: 1\n");
  struct Case {
    Words after;
    std::string message;
  };
  const auto c = GENERATE(values<Case>({
      {{"--nproc", "2"},
       "--nproc is an option of mgpu-run; write it before the recipe: mgpu-run "
       "--nproc N|gpu|cpu|auto "},
      {{"--set", "a=1", "--max_restarts=3"},
       "--max_restarts is an option of mgpu-run; write it "
       "before the recipe: mgpu-run --max_restarts N "},
      {{"-n", "2"},
       "-n is an option of mgpu-run; write it before the recipe: mgpu-run -n "
       "N|gpu|cpu|auto "},
      {{"--dry-run"},
       "--dry-run is an option of mgpu-run; write it before the recipe: mgpu-run --dry-run "},
  }));
  Words line{recipe};
  line.insert(line.end(), c.after.begin(), c.after.end());
  CHECK_THROWS_WITH(parse(line), c.message + recipe);
}

TEST_CASE("options of mgpu-train after a recipe are passed to it", "[cli]") {
  const TempDir dir;
  const auto recipe = write_file(dir.path("job.yaml"), "lr: 1\n");
  const auto theirs = GENERATE(values<Words>({{"--set", "lr=2", "--allow-unknown", "--single"},
                                              {"--check", "--gpus", "4"},
                                              {"--nproc=4", "--check"},
                                              {"--help"}}));
  Words line{"-n", "2", recipe};
  line.insert(line.end(), theirs.begin(), theirs.end());
  CHECK(parse(line).args == theirs);
}

TEST_CASE("--set without a TARGET is a recipe", "[cli]") {
  const auto options = parse({"--set", "lr=1", "-n", "4", "--set=b=2"});
  CHECK(options.only_set);
  CHECK(options.is_recipe());
  CHECK(options.target == "mgpu-train");
  CHECK(options.set == Words{"lr=1", "b=2"});
  CHECK_FALSE(parse({"--set", "lr=1", "x.py"}).only_set);
  CHECK_THROWS_WITH(parse({"-m", "--set", "lr=1"}), Contains("nothing to run"));
}

TEST_CASE("-- lets a TARGET begin with a dash", "[cli]") {
  CHECK(parse({"--no-python", "--", "-prog"}).target == "-prog");
}

TEST_CASE("long names may be abbreviated while they are unique", "[cli]") {
  CHECK(parse({"--nproc_per=2", "x"}).nproc.number == 2);
  CHECK(parse({"--redirect=3", "x"}).redirects.all == 3);
  CHECK(parse({"--dry", "x"}).dry_run);
  SECTION("an exact name wins over longer ones") {
    CHECK(parse({"--nproc", "2", "x"}).nproc.number == 2);
  }
  SECTION(
      "an abbreviation that torchrun accepts stays unambiguous although mgpu-run has more "
      "options") {
    CHECK(parse({"--re", "3", "x"}).redirects.all == 3);  // not report or retry-delay
  }
  SECTION("an ambiguous abbreviation is rejected with the candidates") {
    CHECK_THROWS_WITH(
        parse({"--master", "h", "x"}),
        "--master is ambiguous: it matches --master-addr, --master-port; write more of the name");
  }
}

TEST_CASE("options that only mgpu-run has are read", "[cli]") {
  const auto o = parse({"--gpus",
                        "1,GPU-8f1",
                        "--oversubscribe",
                        "--env",
                        "A=1",
                        "--env=B=x=y",
                        "--workdir",
                        "/tmp",
                        "--grace",
                        "2.5",
                        "--retry-delay",
                        "0.25",
                        "--signal-group",
                        "--dry-run",
                        "--json",
                        "--set",
                        "lr=1",
                        "--set",
                        "a.b=2",
                        "--quiet",
                        "--prefix",
                        "--report",
                        "r.json",
                        "--rank0-store",
                        "x"});
  CHECK(o.gpus == Words{"1", "GPU-8f1"});
  CHECK(o.oversubscribe);
  CHECK(o.env == std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", "x=y"}});
  CHECK(o.workdir == "/tmp");
  CHECK(o.grace == Milliseconds(2500));
  CHECK(o.retry_delay == Milliseconds(250));
  CHECK(o.signal_group);
  CHECK(o.dry_run);
  CHECK(o.json);
  CHECK(o.set == Words{"lr=1", "a.b=2"});
  CHECK(o.quiet);
  CHECK(o.prefix);
  CHECK(o.report == "r.json");
  CHECK(o.rank0_store);
}

TEST_CASE("a bare word can be a command of mgpu-run", "[cli]") {
  CHECK(parse({"devices"}).command == Command::devices);
  CHECK(parse({"devices", "--json"}).json);
  CHECK(parse({"--json", "devices"}).json);
  CHECK_THROWS_WITH(parse({"devices", "all"}), "devices all: devices accepts only --json");
  SECTION("doctor takes a port") {
    CHECK(parse({"doctor"}).command == Command::doctor);
    CHECK(parse({"doctor"}).doctor_port == std::nullopt);
    CHECK(parse({"doctor", "--port", "29500", "--json"}).doctor_port == 29500);
    CHECK(parse({"doctor", "--port", "29500", "--json"}).json);
    CHECK(parse({"doctor", "--port=29500"}).doctor_port == 29500);
    CHECK(parse({"--master-port", "29501", "doctor"}).doctor_port == 29501);
    CHECK(parse({"doctor", "--help"}).command == Command::help);
    CHECK_THROWS_WITH(parse({"doctor", "--port", "70000"}),
                      "doctor --port 70000: need a whole number from 1 to 65535");
    CHECK_THROWS_WITH(parse({"doctor", "--port"}), "doctor --port: needs a value, N");
  }
  SECTION("status accepts options before and after the job's name") {
    const auto status = parse({"status", "--json", "job1", "--rdzv-endpoint", "h:29400"});
    CHECK(status.command == Command::status);
    CHECK(status.status_job == "job1");
    CHECK(status.rdzv_endpoint == "h:29400");
    CHECK(status.json);
    CHECK(parse({"status"}).status_job.empty());
    CHECK_THROWS_WITH(parse({"status", "a", "b"}), "status b: status accepts only one job");
  }
  SECTION("with a slash, -m or --no-python it is a target") {
    CHECK(parse({"./devices"}).command == Command::run);
    CHECK(parse({"-m", "devices"}).command == Command::run);
    CHECK(parse({"--no-python", "status"}).command == Command::run);
  }
  SECTION("command names for later versions are reserved") {
    const std::string word = "top";
    CHECK_THROWS_WITH(parse({word}), word + " is reserved for a future command; write ./" + word +
                                         " for a file of that name");
    CHECK(parse({"./" + word}).target == "./" + word);
  }
}

TEST_CASE("help and version need no TARGET and read no files", "[cli]") {
  CHECK(parse({"--help"}).command == Command::help);
  CHECK(parse({"-h", "--config", "/nope"}).command == Command::help);
  CHECK(parse({"--version"}, {{"MGPU_NPROC", "x"}}).command == Command::version);
  CHECK_THAT(version_text(), Catch::Matchers::StartsWith("mgpu-run "));
}

TEST_CASE("the help is the golden file", "[cli][golden]") {
  std::ifstream in(mgpu::tests::in_sources("tests/cli/golden/help.txt"));
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  CHECK(help_text() == golden);
}

TEST_CASE("each source overrides the sources below it", "[cli]") {
  TempDir dir;
  const auto recipe = write_file(dir.path("job.yaml"), "launch:\n  nproc: 1\n  role: recipe\n");
  const auto config = write_file(dir.path("site.yaml"), "launch:\n  nproc_per_node: 2\n");
  Words line{recipe};
  Environment environment;
  int expected = 1;
  SECTION("a recipe over the default") {}
  SECTION("--config over a recipe") {
    line = {"--config", config, recipe};
    expected = 2;
    SECTION("PET_ over files") {
      environment.emplace("PET_NPROC_PER_NODE", "3");
      expected = 3;
      SECTION("MGPU_ over PET_") {
        environment.emplace("MGPU_NPROC", "4");
        expected = 4;
        SECTION("a flag over all") {
          line.insert(line.begin(), "-n5");
          expected = 5;
        }
      }
    }
  }
  SECTION("MGPU_CONFIG is --config") {
    environment.emplace("MGPU_CONFIG", config);
    expected = 2;
  }
  const auto options = parse(line, environment);
  CHECK(options.nproc.number == expected);
  CHECK(options.role == "recipe");  // per option
}

TEST_CASE("within a source the last value wins, and repeatable options accumulate", "[cli]") {
  CHECK(parse({"-n1", "--nproc=2", "x"}).nproc.number == 2);
  CHECK(parse({"--quiet", "--quiet=0", "x"}).quiet == false);
  CHECK(parse({"--env", "C=3", "x"}, {{"MGPU_ENV", "A=1\nB=2\n"}}).env ==
        std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", "2"}, {"C", "3"}});
}

TEST_CASE("the command line can switch off a flag of a file", "[cli]") {
  TempDir dir;
  const auto recipe = write_file(dir.path("job.yml"), "launch: {oversubscribe: true}\n");
  CHECK(parse({recipe}).oversubscribe);
  CHECK_FALSE(parse({"--oversubscribe=false", recipe}).oversubscribe);
}

TEST_CASE("MGPU_ variables that are not options are ignored", "[cli]") {
  const auto options = parse({"x"}, {{"MGPU_OOM_COUNT", "many"},
                                     {"MGPU_JOB_COOKIE", "?"},
                                     {"MGPU_TRAIN", "/nope"},
                                     {"MGPU_HELP", "1"},
                                     {"MGPU_VERSION", "9"}});
  CHECK(options.command == Command::run);
  CHECK(options.notes.empty());
}

TEST_CASE("the real environment and argv are read", "[cli]") {
  char program[] = "mgpu-run", target[] = "x.py";
  char* argv[] = {program, target, nullptr};
  ::setenv("MGPU_MAX_RESTARTS", "9", 1);
  CHECK(parse_options(2, argv).max_restarts == 9);
  ::unsetenv("MGPU_MAX_RESTARTS");
}

TEST_CASE("a usage error names the option and what is accepted", "[cli]") {
  struct Case {
    Words line;
    std::string message;
  };
  const std::string count = ": need a whole number from 1 to 4096, or gpu, cpu, auto";
  const auto c = GENERATE_COPY(values<Case>({
      {{},
       "nothing to run; name a recipe (.yaml), a script, -m MODULE or a program, or see "
       "--help"},
      {{"--"},
       "nothing to run; name a recipe (.yaml), a script, -m MODULE or a program, or see "
       "--help"},
      {{"--nprocs", "2", "x"}, "unknown option --nprocs; did you mean --nproc?"},
      {{"--mxa_restarts=2", "x"}, "unknown option --mxa_restarts; did you mean --max-restarts?"},
      {{"--frobnicate", "x"}, "unknown option --frobnicate; see --help"},
      {{"--=2", "x"}, "unknown option --; see --help"},
      {{"--nproc", "0", "x"}, "--nproc 0" + count},
      {{"--nproc", "-1", "x"}, "--nproc -1" + count},
      {{"-n", "1e9", "x"}, "-n 1e9" + count},
      {{"--nproc_per_node=4x", "x"}, "--nproc_per_node 4x" + count},
      {{"--nproc", "99999999999999999999", "x"}, "--nproc 99999999999999999999" + count},
      {{"--nproc=", "x"}, "--nproc ''" + count},
      {{"--nproc"}, "--nproc: needs a value, N|gpu|cpu|auto"},
      {{"--log-dir", "--tee", "3", "x"},
       "--log-dir: needs a value, DIR, and --tee looks like an option; write --log-dir=--tee if "
       "it is the value"},
      {{"--nnodes", "2:1", "x"},
       "--nnodes 2:1: the minimum number of nodes, 2, is above the maximum, 1; need MIN:MAX, for "
       "example 1:2"},
      {{"--nnodes", "1:2:3", "x"}, "--nnodes 1:2:3: need N or MIN:MAX, each from 1 to 65536"},
      {{"--signals-to-handle", "SIGKILL", "x"},
       "--signals-to-handle SIGKILL: no program can handle SIGKILL; leave it out"},
      {{"--signals-to-handle", "TERM,SIGFOO", "x"},
       "--signals-to-handle TERM,SIGFOO: SIGFOO is not a signal; need names such as "
       "SIGTERM,SIGINT"},
      {{"--rdzv-conf", "a=1,b", "x"},
       "--rdzv-conf a=1,b: b is not a pair; need key=value,key=value"},
      {{"--env", "A", "x"}, "--env A: need KEY=VALUE"},
      {{"--env=RANK=0", "x"}, "--env RANK=0: mgpu-run sets RANK itself in every rank; drop it"},
      {{"--env", "WORLD_SIZE=8", "x"},
       "--env WORLD_SIZE=8: mgpu-run sets WORLD_SIZE itself in every rank; use --nproc and "
       "--nnodes instead"},
      {{"--set", "=1", "x"}, "--set =1: need KEY=VALUE"},
      {{"--grace", "-1", "x"},
       "--grace -1: need seconds from 0 to 31622400, for example 30 or 2.5"},
      {{"--start-method", "thread", "x"},
       "--start-method thread: need one of spawn, fork, forkserver"},
      {{"--completion", "tcsh"}, "--completion tcsh: need one of bash, zsh, fish"},
      {{"--master-port", "65536", "x"}, "--master-port 65536: need a whole number from 0 to 65535"},
      {{"--quiet=maybe", "x"}, "--quiet maybe: need 1 or 0, true or false"},
      {{"-m", "--no-python", "x"},
       "--module and --no-python cannot be combined: a module needs Python; drop one"},
  }));
  CAPTURE(c.line);
  CHECK_THROWS_WITH(parse(c.line), c.message);
}

TEST_CASE("a bad variable is named", "[cli]") {
  CHECK_THROWS_WITH(parse({"x"}, {{"MGPU_NNODES", "x"}}),
                    "MGPU_NNODES=x: need N or MIN:MAX, each from 1 to 65536");
  CHECK_THROWS_WITH(parse({"x"}, {{"PET_NPROC_PER_NODE", "8x"}}),
                    Contains("PET_NPROC_PER_NODE=8x: need a whole number"));
  CHECK_THROWS_WITH(parse({"x"}, {{"MGPU_CONFIG", "/no/c.yaml"}}),
                    "MGPU_CONFIG: cannot read /no/c.yaml: No such file or directory");
  CHECK_THROWS_WITH(parse({"--config", "/no/c.yaml", "x"}),
                    "--config: cannot read /no/c.yaml: No such file or directory");
}

TEST_CASE("a huge value is accepted, or rejected with a short message", "[cli]") {
  const std::string huge(10'000'000, 'x');
  CHECK(parse({"--role", huge, "x"}).role == huge);
  CHECK(parse({"x", huge}).args.at(0) == huge);
  const auto line = GENERATE_COPY(Words{"--nproc", huge, "x"}, Words{"--" + huge, "x"},
                                  Words{"-n" + huge, "x"}, Words{"--tee", huge, "x"},
                                  Words{"devices", huge}, Words{"--rdzv-conf", huge, "x"},
                                  Words{"--signals-to-handle", huge, "x"}, Words{huge + ".yaml"});
  try {
    parse(line);
    FAIL("it was taken");
  } catch (const UsageError& e) {
    const std::string message = e.what();
    CHECK(message.size() < 450);
    CHECK(message.find('\n') == message.npos);
  }
}

TEST_CASE("an error is one line for any input", "[cli]") {
  CHECK_THROWS_WITH(parse({"--nproc", "4\n\x1b[2J", "x"}), Contains("--nproc 4??[2J: need"));
}

TEST_CASE("--json alone gives a note that it has no effect", "[cli]") {
  CHECK(parse({"--json", "x"}).notes.size() == 1);
  CHECK(parse({"--json", "--dry-run", "x"}).notes.empty());
}
