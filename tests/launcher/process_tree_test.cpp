#include "launcher/ranks/process_tree.hpp"

#include <unistd.h>

#include <csignal>

#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/memory_watch.hpp"
#include "launcher/ranks/rank_sessions.hpp"
#include "rendezvous/base/small_file.hpp"
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

TEST_CASE("a process is read from its line in /proc", "[rank_sessions]") {
  const std::string fields = "10 40 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9 9";
  const ProcessEntry expected{.pid = 50, .parent = 10, .session = 30, .started = 777};
  CHECK(parse_process_stat("50 (sh) S " + fields) == expected);
  CHECK(parse_process_stat("50 (a) Z (b) R " + fields) == expected);
  CHECK(parse_process_stat("50 (sh) Z " + fields).value().zombie);
  CHECK_FALSE(parse_process_stat("50 (sh) S 10 40 30 0").has_value());
  CHECK_FALSE(parse_process_stat("").has_value());

  SECTION("one whose first thread has ended still runs") {
    const std::string two_threads = "10 40 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 777 9 9";
    CHECK(parse_process_stat("50 (sh) Z " + two_threads) == expected);
  }
}

TEST_CASE("the processes of a job are the ranks' sessions, what is known, and descendants",
          "[rank_sessions]") {
  const ProcessEntry launcher{.pid = 10, .parent = 1, .session = 5, .started = 100};
  const ProcessEntry rank{.pid = 20, .parent = 10, .session = 20, .started = 110};
  const ProcessEntry child{.pid = 21, .parent = 1, .session = 20, .started = 120};
  const ProcessEntry far{.pid = 22, .parent = 21, .session = 22, .started = 130};
  const ProcessEntry farther{.pid = 19, .parent = 22, .session = 22, .started = 140};
  const ProcessEntry stranger{.pid = 30, .parent = 1, .session = 30, .started = 120};
  const std::vector<ProcessEntry> all{launcher, farther, rank, child, far, stranger};

  CHECK(members_and_descendants(all, {{.leader = 20}}, {}) ==
        std::vector<ProcessEntry>{farther, rank, child, far});
  CHECK(members_and_descendants(all, {{}}, {22}) == std::vector<ProcessEntry>{farther, far});
  CHECK(members_and_descendants(all, {}, {}).empty());

  SECTION("a later process may be in another session that got the same number") {
    CHECK(members_and_descendants(all, {{.leader = 20, .until = 119}}, {}) ==
          std::vector<ProcessEntry>{rank});
    CHECK(members_and_descendants(all, {{.leader = 20, .until = 120}}, {}) ==
          std::vector<ProcessEntry>{farther, rank, child, far});
  }
}

TEST_CASE("a process that got the pid of an earlier one is never signalled", "[rank_sessions]") {
  const auto text = mgpu::rendezvous::read_kernel_file("/proc/self/stat").value();
  auto self = parse_process_stat(text).value();
  CHECK(signal_process(self, Signal::numbered(0)));
  CHECK(self.started <= boot_ticks_now());
  --self.started;
  CHECK_FALSE(signal_process(self, SIGKILL));
}

TEST_CASE("the session of a rank is known until the next one starts", "[rank_sessions]") {
  RankSessions sessions(2);
  CHECK(sessions.all() == std::vector<RankSession>{{}, {}});
  sessions.started(1, 70);
  CHECK(sessions.all()[1] == RankSession{.leader = 70});
  const auto before = boot_ticks_now();
  sessions.reaped(1);
  CHECK(sessions.all()[1].until >= before);
  CHECK(sessions.all()[1].until <= boot_ticks_now());
  sessions.started(1, 71);
  CHECK(sessions.all()[1] == RankSession{.leader = 71});
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
