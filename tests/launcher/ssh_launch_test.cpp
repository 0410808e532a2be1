#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "launcher/ssh_launch/forwarded_environment.hpp"
#include "launcher/ssh_launch/plan.hpp"
#include "tests/launcher/cli_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::tests::parse;
using mgpu::tests::TempDir;
using Words = std::vector<std::string>;
using Step = SshLaunchPolicy::Step;

namespace {

const SshLaunchFacts kHere{.host_name = "head.example", .user = "me", .port = 20123};
const std::vector<Host> kHosts{{"", "a", 4, 1}, {"you", "b", std::nullopt, 2}, {"", "c", 2, 3}};

std::vector<AgentStart> agents_for(Words line, const std::vector<Host>& hosts = kHosts) {
  line.insert(line.begin(), "--hostfile=hosts");
  return plan_ssh_launch(parse(line), hosts, kHere);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("every host gets the command line and its own node rank", "[ssh_launch]") {
  const auto agents =
      agents_for({"--max-restarts", "3", "--env", "A=b c", "--tee=3", "-m", "train", "--lr", "1"});
  REQUIRE(agents.size() == 3);
  CHECK(agents[0].arguments == Words{"--max-restarts=3", "--env=A=b c", "--tee=3", "--module",
                                     "--nnodes=3", "--node-rank=0", "--master-addr=a",
                                     "--master-port=20123", "--nproc=4", "--rdzv-token-stdin", "--",
                                     "train", "--lr", "1"});
  CHECK(agents[1].arguments == Words{"--max-restarts=3", "--env=A=b c", "--tee=3", "--module",
                                     "--nnodes=3", "--node-rank=1", "--master-addr=a",
                                     "--master-port=20123", "--rdzv-token-stdin", "--", "train",
                                     "--lr", "1"});
  CHECK_FALSE(agents[0].local);

  // An agent that is started this way starts no agents itself.
  auto words = agents[2].arguments;
  const auto o = parse(words);
  CHECK(o.hostfile.empty());
  CHECK(o.node_rank == 2);
  CHECK(o.nproc.number == 2);
  CHECK(o.args == Words{"--lr", "1"});
}

TEST_CASE("a recipe of --set alone reaches every host", "[ssh_launch]") {
  const auto agents = agents_for({"--set", "lr=1", "--set", "b=2"});
  REQUIRE(agents.size() == 3);
  CHECK(agents[1].arguments == Words{"--set=lr=1", "--set=b=2", "--nnodes=3", "--node-rank=1",
                                     "--master-addr=a", "--master-port=20123",
                                     "--rdzv-token-stdin"});
  CHECK(parse(agents[1].arguments).only_set);
}

TEST_CASE("only as many hosts of a hostfile as requested are used", "[ssh_launch]") {
  CHECK(agents_for({"--nnodes", "2", "x"}).size() == 2);
  const auto elastic = agents_for({"--nnodes", "1:2", "--master-port", "29500", "x"});
  REQUIRE(elastic.size() == 2);
  CHECK(elastic[1].arguments == Words{"--nnodes=1:2", "--node-rank=1", "--rdzv-endpoint=a:29500",
                                      "--rdzv-backend=c10d", "--rdzv-token-stdin", "--", "x"});
  CHECK(agents_for({"--nnodes", "2:8", "x"})[0].arguments[0] == "--nnodes=2:3");
  CHECK_THROWS_WITH(agents_for({"--nnodes", "4", "x"}),
                    "--nnodes 4: hosts lists only 3 hosts; add hosts or lower --nnodes");
  CHECK_THROWS_WITH(agents_for({"--node-rank", "1", "x"}), Contains("--node-rank and --hostfile"));
  CHECK_THROWS_WITH(agents_for({"--standalone", "x"}), Contains("--standalone and --hostfile"));
}

TEST_CASE("a given master address or rendezvous endpoint is kept", "[ssh_launch]") {
  CHECK_THAT(agents_for({"--master-addr", "10.0.0.1", "x"})[1].arguments,
             Catch::Matchers::VectorContains(std::string("--master-addr=10.0.0.1")));
  const auto etcd = agents_for({"--rdzv-backend=etcd", "--rdzv-endpoint=http://e:2379", "x"},
                               {{"", "a", 4, 1}, {"me", "b", std::nullopt, 2}, {"", "c", 2, 3}});
  CHECK(etcd[0].arguments == Words{"--rdzv-backend=etcd", "--rdzv-endpoint=http://e:2379",
                                   "--nnodes=3", "--node-rank=0", "--nproc=4", "--rdzv-token-stdin",
                                   "--", "x"});
  CHECK(agents_for({"-n", "1", "x"})[0].arguments[0] == "--nproc=1");  // overrides slots=4
  const auto report = agents_for({"--report", "r.json", "x"});
  CHECK_THAT(report[0].arguments, Catch::Matchers::VectorContains(std::string("--report=r.json")));
  for (const auto& word : report[1].arguments) CHECK_FALSE(word.starts_with("--report"));
}

TEST_CASE("hosts with different users would have different keys in etcd", "[ssh_launch]") {
  const Words etcd{"--rdzv-backend=etcd", "--rdzv-endpoint=http://e:2379"};
  auto line = etcd;
  line.emplace_back("x");
  CHECK_THROWS_WITH(agents_for(line), Contains("a and you@b have different users") &&
                                          Contains("--rdzv-conf prefix=/mgpu-run/NAME"));
  line = etcd;
  line.insert(line.end(), {"--rdzv-conf=prefix=/mgpu-run/team", "x"});
  CHECK(agents_for(line).size() == 3);
}

TEST_CASE("a host that is this machine needs no ssh", "[ssh_launch]") {
  const auto agents = agents_for({"x"}, {{"", "localhost", std::nullopt, 1},
                                         {"", "head", std::nullopt, 2},
                                         {"me", "head.example", std::nullopt, 3},
                                         {"you", "head", std::nullopt, 4}});
  CHECK(agents[0].local);
  CHECK(agents[1].local);
  CHECK(agents[2].local);
  CHECK_FALSE(agents[3].local);  // as another user
  CHECK(agents[3].arguments[2] == "--master-addr=head.example");
  CHECK(agents_for({"x"}, {{"", "localhost", 2, 1}})[0].arguments ==
        Words{"--nnodes=1", "--node-rank=0", "--nproc=2", "--rdzv-token-stdin", "--", "x"});
  CHECK(agents_for({"x"}, {{"", "localhost", 1, 1}, {"", "head", 1, 2}})[0].arguments[2] ==
        "--master-addr=127.0.0.1");
}

TEST_CASE("the dry run of a hostfile shows the command of each host", "[ssh_launch]") {
  CHECK(ssh_launch_text(agents_for({"--nnodes=2", "x", "a b"})) ==
        "node  host   started   command\n"
        "0     a      over ssh  mgpu-run --nnodes=2 --node-rank=0 --master-addr=a "
        "--master-port=20123 --nproc=4 --rdzv-token-stdin -- x 'a b'\n"
        "1     you@b  over ssh  mgpu-run --nnodes=2 --node-rank=1 --master-addr=a "
        "--master-port=20123 --rdzv-token-stdin -- x 'a b'\n");
}

TEST_CASE("variables of the login session are not forwarded", "[ssh_launch]") {
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "LANG",
                           "NCCL_DEBUG", "HF_TOKEN", "MGPU_KEEP_ALIVE", "a_1"}) {
    CAPTURE(name);
    CHECK(is_forwarded(name));
  }
  for (const char* name : {"HOME",
                           "USER",
                           "PWD",
                           "TMPDIR",
                           "SSH_AUTH_SOCK",
                           "XDG_RUNTIME_DIR",
                           "DISPLAY",
                           "SLURM_JOB_ID",
                           "OMPI_COMM_WORLD_RANK",
                           "PMIX_RANK",
                           "MGPU_HOSTFILE",
                           "MGPU_RDZV_TOKEN",
                           "MGPU_JOB_COOKIE",
                           "BASH_FUNC_x%%",
                           "a-b",
                           "",
                           "1a",
                           "UID",
                           "IFS",
                           "NOTIFY_SOCKET"}) {
    CAPTURE(name);
    CHECK_FALSE(is_forwarded(name));
  }
  CHECK(is_inherited("HOME"));
  CHECK_FALSE(is_inherited("MGPU_RDZV_TOKEN"));
}

TEST_CASE("folder, environment and arguments arrive unchanged", "[ssh_launch][fork]") {
  TempDir dir;
  std::string odd;
  for (int c = 1; c < 256; ++c) odd += static_cast<char>(c);
  odd += "\n\n";
  const auto folder = dir.path("it's \n here");
  REQUIRE(::mkdir(folder.c_str(), 0700) == 0);
  const auto program = dir.path("program");
  std::ofstream(program) << "#!/bin/sh\nprintf %s \"$ODD\" > '" << dir.path("env")
                         << "'\nprintf %s \"$2\" > '" << dir.path("arg") << "'\npwd > '"
                         << dir.path("pwd") << "'\necho $# >'" << dir.path("count") << "'\ncat > '"
                         << dir.path("stdin") << "'\n";
  ::chmod(program.c_str(), 0755);
  const auto* shell = GENERATE("/bin/sh", "/bin/bash");
  CAPTURE(shell);
  const std::string rest = "secret\n" + odd;
  std::ofstream(dir.path("script"))
      << script_of({folder, {"ODD=" + odd, "v=1"}, program, {"", odd, "$(reboot)"}}) << rest;
  // As a login shell receives it.
  auto command = std::string(shell) + " -c \"$OBEY\" < '" + dir.path("script") + "'";
  ::setenv("OBEY", kRunStdinScript, 1);
  CHECK(::system(command.c_str()) == 0);
  CHECK(text_of(dir.path("env")) == odd);
  CHECK(text_of(dir.path("arg")) == odd);
  CHECK(text_of(dir.path("pwd")) == folder + "\n");
  CHECK(text_of(dir.path("count")) == "3\n");
  CHECK(text_of(dir.path("stdin")) == rest);
}

TEST_CASE("any arguments pass through a real shell unchanged", "[ssh_launch][fork]") {
  const TempDir dir;
  std::mt19937 random(7);
  const std::vector<std::string> odd{
      "",  "'", "''", "\\", "%s",  "%%",   "\n", "\n\n",    "$HOME", "`id`", "$(", "-n", "--",
      "*", "~", "#",  "x",  "\\'", "\xff", "é",  "a\tb \"", "; :",   "|",    "&&", "!",  "${x%x}"};
  std::string expected;
  const auto word = [&] {
    std::string text;
    for (std::size_t parts = random() % 6; parts > 0; --parts)
      text += random() % 2 == 0 ? odd[random() % odd.size()]
                                : std::string(1, static_cast<char>(1 + random() % 255));
    return text;
  };
  const auto* shell = GENERATE("/bin/sh", "/bin/bash");
  CAPTURE(shell);
  ::setenv("OBEY", kRunStdinScript, 1);
  for (int list = 0; list < 10; ++list) {
    Words words{"%s\\0"};
    expected.clear();
    for (std::size_t count = 1 + random() % 40; count > 0; --count) {
      words.push_back(word());
      expected += words.back() + '\0';
    }
    std::ofstream(dir.path("script")) << script_of({"", {}, "/usr/bin/printf", words});
    const auto command =
        fmt::format("{} -c \"$OBEY\" < '{}' > '{}'", shell, dir.path("script"), dir.path("out"));
    CHECK(::system(command.c_str()) == 0);
    CHECK(text_of(dir.path("out")) == std::string(kStartLine) + "\n" + expected);
  }
}

TEST_CASE("a program that is missing at its path is looked up on PATH", "[ssh_launch][fork]") {
  TempDir dir;
  std::ofstream(dir.path("there"))
      << "#!/bin/sh\necho there \"$1\" > '" << dir.path("out") << "'\n";
  ::chmod(dir.path("there").c_str(), 0755);
  std::ofstream(dir.path("script")) << script_of(
      {"", {"PATH=" + dir.root().string() + ":/usr/bin:/bin"}, "/no/such/there", {"x y"}});
  ::setenv("OBEY", kRunStdinScript, 1);
  CHECK(::system(("/bin/sh -c \"$OBEY\" < '" + dir.path("script") + "'").c_str()) == 0);
  CHECK(text_of(dir.path("out")) == "there x y\n");
}

TEST_CASE("the first agent that fails sets the status", "[ssh_launch]") {
  SshLaunchPolicy policy(3, 3);
  CHECK(policy.agent_exited({.code = 7}, true) == Step::stop_in_time);
  CHECK(policy.agent_exited({.code = 1}, false) == Step::stop_in_time);
  CHECK_FALSE(policy.done());
  CHECK(policy.agent_exited({}, true) == Step::wait);
  CHECK(policy.done());
  CHECK(policy.status() == 7);
}

TEST_CASE("a host whose ssh has failed ends a job that needs it", "[ssh_launch]") {
  SECTION("with the status for lost nodes") {
    SshLaunchPolicy policy(2, 2);
    CHECK(policy.agent_exited({.code = 255}, true) == Step::stop_at_once);
    CHECK(policy.agent_exited({.code = 143}, true) == Step::stop_in_time);
    CHECK(policy.status() == 75);
  }
  SECTION("but not a job that can continue without it") {
    SshLaunchPolicy policy(3, 2);
    CHECK(policy.agent_exited({.signal = SIGKILL}, true) == Step::wait);
    CHECK(policy.agent_exited({}, true) == Step::wait);
    CHECK(policy.agent_exited({}, true) == Step::wait);
    CHECK(policy.status() == 0);
  }
  SECTION("status 255 of a local agent is a normal status") {
    SshLaunchPolicy policy(1, 1);
    CHECK(policy.agent_exited({.code = 255}, false) == Step::stop_in_time);
    CHECK(policy.status() == 255);
  }
}

TEST_CASE("the others do not wait for an agent that never started", "[ssh_launch]") {
  SshLaunchPolicy policy(2, 2);
  CHECK(policy.agent_exited({.code = GENERATE(2, 126, 127)}, true) == Step::stop_at_once);
}

TEST_CASE("a stop signal sets the status unless the job has failed before", "[ssh_launch]") {
  SshLaunchPolicy policy(2, 2);
  const bool failed = GENERATE(false, true);
  if (failed) policy.agent_exited({.code = 3}, true);
  policy.stop_requested(SIGTERM);
  policy.agent_exited({}, true);
  CHECK(policy.status() == (failed ? 3 : 143));
}
