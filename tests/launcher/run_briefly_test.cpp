#include "launcher/ranks/run_briefly.hpp"

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using mgpu::tests::TempDir;

namespace {

BriefRun sh(const std::string& script, Milliseconds limit = 20s) {
  Inherited inherited;
  ::getrlimit(RLIMIT_NOFILE, &inherited.nofile);
  sigemptyset(&inherited.mask);
  return run_briefly({"/bin/sh", "-c", script}, inherited, limit);
}

}  // namespace

TEST_CASE("the output and the status of a program are returned", "[brief][fork]") {
  const auto run = sh("echo out; echo err >&2; exit 3");
  CHECK_FALSE(run.timed_out);
  CHECK(run.status == 3);
  CHECK(run.output == "out\nerr\n");
  CHECK(sh("kill -KILL $$").status == 137);
  CHECK(sh("read line; echo \"[$line]\"; pwd").output == "[]\n/\n");
}

TEST_CASE("a debugger is not told where to download symbols", "[brief][fork]") {
  ::setenv("DEBUGINFOD_URLS", "https://debuginfod.example", 1);
  ::setenv("MGPU_TEST_KEPT", "kept", 1);
  const auto run = sh("echo \"$DEBUGINFOD_URLS$MGPU_TEST_KEPT\"");
  ::unsetenv("DEBUGINFOD_URLS");
  ::unsetenv("MGPU_TEST_KEPT");
  CHECK(run.output == "kept\n");
}

TEST_CASE("a program that cannot be started ends with 127", "[brief][fork]") {
  Inherited inherited;
  ::getrlimit(RLIMIT_NOFILE, &inherited.nofile);
  sigemptyset(&inherited.mask);
  CHECK(run_briefly({"/nope"}, inherited, 20s).status == 127);
}

TEST_CASE("a long output is truncated, and the program runs to its end", "[brief][fork]") {
  const auto run = sh("head -c 300000 /dev/zero; exit 4");
  CHECK(run.status == 4);
  CHECK(run.output.size() == 65536);
}

TEST_CASE("a program that takes too long is killed with what it started", "[brief][fork]") {
  TempDir dir;
  const auto run = sh("sleep 600 & echo $! > " + dir.path("pid") + "; echo begun; wait", 2s);
  CHECK(run.timed_out);
  CHECK(run.output == "begun\n");
  int pid = 0;
  std::ifstream(dir.path("pid")) >> pid;
  REQUIRE(pid > 1);
  // It is killed, but init may not have reaped it yet.
  const auto alive = [&] {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    return stat && state != "Z";
  };
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (alive() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
  CHECK_FALSE(alive());
}

TEST_CASE("orphan processes of a program are not waited for", "[brief][fork]") {
  const auto begin = std::chrono::steady_clock::now();
  const auto run = sh("sleep 600 & echo done");
  CHECK_FALSE(run.timed_out);
  CHECK(run.output == "done\n");
  CHECK(std::chrono::steady_clock::now() - begin < 15s);
}
