#include "launcher/ranks/memory_cgroup.hpp"

#include <unistd.h>

#include <fstream>
#include <map>

#include "launcher/ranks/memory_watch.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;

namespace {

// A folder with recorded files of a memory cgroup.
std::string cgroup_files(const mgpu::tests::TempDir& dir, const std::string& name,
                         const std::map<std::string, std::string>& files) {
  const auto folder = dir.path(name);
  std::filesystem::create_directories(folder);
  for (const auto& [file, text] : files) std::ofstream(folder + "/" + file) << text;
  return folder;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::map<std::string, std::string> kV2 = {
    {"memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"},
    {"memory.max", "max\n"},
    {"memory.swap.max", "max\n"},
    {"memory.oom.group", "0\n"},
    {"memory.current", "1000000\n"},
    {"memory.peak", "2000000\n"},
    {"memory.stat", "anon 600000\nfile 400000\ninactive_file 300000\nactive_file 50000\n"}};
const std::map<std::string, std::string> kV1 = {
    {"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"},
    {"memory.limit_in_bytes", "9223372036854771712\n"},
    {"memory.memsw.limit_in_bytes", "9223372036854771712\n"},
    {"memory.usage_in_bytes", "1000000\n"},
    {"memory.max_usage_in_bytes", "2000000\n"},
    {"memory.stat",
     "cache 1\ninactive_file 7\ntotal_inactive_file 300000\ntotal_active_file 50000\n"}};

}  // namespace

TEST_CASE("a number is found by its whole name", "[memory_cgroup]") {
  CHECK(number_named("oom 3\noom_kill 2\noom_group_kill 9\n", "oom_kill") == 2);
  CHECK(number_named("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill") == 5);
  CHECK(number_named("", "oom_kill") == 0);
}

TEST_CASE("the memory files of cgroup v1 and v2 give the same numbers", "[memory_cgroup]") {
  const mgpu::tests::TempDir dir;
  const bool v2 = GENERATE(true, false);
  const auto folder = cgroup_files(dir, "job", v2 ? kV2 : kV1);
  const auto cgroup = MemoryCgroup::in(folder);
  REQUIRE(cgroup);
  CHECK(cgroup->oom_kills() == (v2 ? 2 : 5));
  CHECK(cgroup->limit() == 0);
  CHECK(cgroup->peak() == 2'000'000);
  CHECK(cgroup->used_bytes() == 650'000);
  CHECK_FALSE(cgroup->with_smallest_limit());

  SECTION("a limit includes swap, and in v2 ends all processes of the rank") {
    CHECK(cgroup->set_limit(64 << 20));
    CHECK(cgroup->limit() == 64 << 20);
    CHECK(cgroup->with_smallest_limit()->folder() == folder);
    if (v2) {
      CHECK(text_of(folder + "/memory.swap.max").starts_with("0"));
      CHECK(text_of(folder + "/memory.oom.group").starts_with("1"));
    } else {
      CHECK(text_of(folder + "/memory.memsw.limit_in_bytes").starts_with("67108864"));
    }
  }
  SECTION("the limit of a cgroup above counts if it is smaller") {
    const auto inner = cgroup_files(dir, "job/rank_0", v2 ? kV2 : kV1);
    REQUIRE(cgroup->set_limit(32 << 20));
    REQUIRE(MemoryCgroup::in(inner)->set_limit(64 << 20));
    CHECK(MemoryCgroup::in(inner)->with_smallest_limit()->folder() == folder);
    REQUIRE(MemoryCgroup::in(inner)->set_limit(16 << 20));
    CHECK(MemoryCgroup::in(inner)->with_smallest_limit()->folder() == inner);
  }
}

TEST_CASE("a process is in a cgroup if the end of its path is that of the folder",
          "[memory_cgroup]") {
  const std::string folder = "/sys/fs/cgroup/memory/pod/mgpu-7-abc/attempt_0/rank_1";
  CHECK(names_cgroup("4:memory:/pod/mgpu-7-abc/attempt_0/rank_1", folder));
  CHECK(names_cgroup("0::/mgpu-7-abc/attempt_0/rank_1/inner", folder));
  CHECK_FALSE(names_cgroup("0::/mgpu-7-abc/attempt_0/rank_10", folder));
  CHECK_FALSE(names_cgroup("0::/mgpu-8-abc/attempt_0/rank_1", folder));
  CHECK_FALSE(names_cgroup("0::/", folder));
  CHECK_FALSE(names_cgroup("0::/", ""));
  CHECK_FALSE(is_in_cgroup(::getpid(), folder));
  CHECK(is_in_cgroup(999'999'999, folder));
}

TEST_CASE("a folder without a memory controller is not a memory cgroup", "[memory_cgroup]") {
  const mgpu::tests::TempDir dir;
  CHECK_FALSE(MemoryCgroup::in(dir.path("")));
  CHECK_FALSE(MemoryCgroup::in(""));
}

TEST_CASE("an OOM kill from before the attempt is not counted", "[memory_watch]") {
  const mgpu::tests::TempDir dir;
  const auto folder = cgroup_files(dir, "job", kV2);
  MemoryWatch watch({.v2 = folder, .v1_memory = {}}, "");
  watch.begin_attempt(1);
  CHECK(watch.facts().oom_kills == 0);
  std::ofstream(folder + "/memory.events") << "oom 4\noom_kill 3\n";
  CHECK(watch.facts().oom_kills == 1);
  CHECK(watch.facts().cgroup == folder);
  watch.begin_attempt(1);
  CHECK(watch.facts().oom_kills == 0);
}

TEST_CASE("ranks get v2 cgroups with the memory controller and a limit", "[rank_cgroups]") {
  const mgpu::tests::TempDir dir;
  const auto job = cgroup_files(dir, "job", {{"cgroup.subtree_control", ""}});
  const auto attempt = cgroup_files(dir, "job/attempt_0", {{"cgroup.subtree_control", ""}});
  RankCgroups ranks("", "mgpu-test", 64 << 20);
  SECTION("where the kernel shows their memory files") {
    for (const char* rank : {"job/attempt_0/rank_0", "job/attempt_0/rank_1"})
      cgroup_files(dir, rank, kV2);
    ranks.begin_attempt(job, attempt, 2);
    CHECK(text_of(job + "/cgroup.subtree_control") == "+memory");
    CHECK(text_of(attempt + "/cgroup.subtree_control") == "+memory");
    CHECK(ranks.limited());
    CHECK(ranks.folder(1) == attempt + "/rank_1");
    CHECK(MemoryCgroup::in(ranks.folder(1))->limit() == 64 << 20);
    CHECK(ranks.entry(1, 77).folder >= 0);
    CHECK(ranks.entry(1, 77).folder != 77);
    CHECK(ranks.entry(1, 77).procs == -1);
  }
  SECTION("and start in the attempt's cgroup where it does not") {
    ranks.begin_attempt(job, attempt, 2);
    CHECK_FALSE(ranks.limited());
    CHECK(ranks.folder(1).empty());
    CHECK(ranks.entry(1, 77).folder == 77);
  }
  SECTION("and in our own where there is no cgroup of the job") {
    ranks.begin_attempt("", "", 2);
    CHECK_FALSE(ranks.limited());
    CHECK(ranks.entry(0, -1).folder == -1);
  }
}
