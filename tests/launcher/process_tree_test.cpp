#include "launcher/ranks/process_tree.hpp"

#include <unistd.h>

#include <csignal>

#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/memory_watch.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::string_literals;

TEST_CASE("the cookie is only found in its own variable", "[process_tree]") {
  CHECK(carries_cookie("A=1\0MGPU_JOB_COOKIE=abc\0B=2\0"s, "abc"));
  CHECK(carries_cookie("MGPU_JOB_COOKIE=outer:inner\0"s, "outer"));
  CHECK(carries_cookie("MGPU_JOB_COOKIE=outer:inner\0"s, "inner"));
  CHECK_FALSE(carries_cookie("A=abc\0XMGPU_JOB_COOKIE=abc\0"s, "abc"));
  CHECK_FALSE(carries_cookie("", "abc"));
  CHECK(join_cookies("", "x") == "x");
  CHECK(join_cookies("a:b", "x") == "a:b:x");
  CHECK(make_cookie() != make_cookie());
}

TEST_CASE("a process without the cookie is never signalled", "[process_tree]") {
  CHECK_FALSE(signal_carrier(::getpid(), make_cookie(), SIGKILL));
}

TEST_CASE("the cgroups of a process are found in the kernel's tables", "[cgroup]") {
  SECTION("hybrid: v1 memory and a v2 tree beside it") {
    const auto paths =
        find_cgroups("4:memory:/job/a\n1:name=systemd:/\n0::/\n",
                     "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                     "31 20 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    CHECK(paths.v2 == "/sys/fs/cgroup/unified");
    CHECK(paths.v1_memory == "/sys/fs/cgroup/memory/job/a");
  }
  SECTION("v2 alone") {
    const auto paths =
        find_cgroups("0::/user.slice/x.scope\n",
                     "25 1 0:22 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
    CHECK(paths.v2 == "/sys/fs/cgroup/user.slice/x.scope");
    CHECK(paths.v1_memory.empty());
  }
  SECTION("a container that sees only part of the tree") {
    const auto paths = find_cgroups(
        "0::/docker/abc\n", "25 1 0:22 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    CHECK(paths.v2 == "/sys/fs/cgroup");
  }
  SECTION("none at all") {
    CHECK(find_cgroups("", "").v2.empty());
    CHECK_FALSE(JobCgroup::create("", "x").has_value());
    CHECK_FALSE(JobCgroup::create("/proc/self", "x").has_value());
  }
}

TEST_CASE("OOM kills are read from the counters of cgroup v1 and v2", "[memory_watch]") {
  CHECK(oom_kills_in("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n") == 2);
  CHECK(oom_kills_in("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n") == 5);
  CHECK(oom_kills_in("") == 0);
}
