#include "runtime/train/host_memory.hpp"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

// A machine with 8 MiB available, and the control groups that a test adds.
struct Machine {
  TempDir dir{TempDir::in_memory()};

  Machine() { write("proc/meminfo", "MemTotal:  16384 kB\nMemAvailable:   8192 kB\n"); }

  void write(const std::string& name, const std::string& text) const {
    const auto path = dir.root() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::int64_t available() const { return available_host_memory(dir.root()); }
};

constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("without control groups the machine's available memory counts", "[host_memory]") {
  const Machine machine;
  CHECK(machine.available() == 8 * kMiB);
  machine.write("proc/self/cgroup", "0::/job/rank\n");
  CHECK(machine.available() == 8 * kMiB);
  CHECK(available_host_memory("/there/is/no/such/folder") == 0);
}

TEST_CASE("the smallest of a group and its parents limits the memory", "[host_memory]") {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/job/rank\n");
  machine.write("sys/fs/cgroup/job/memory.max", "4194304\n");
  machine.write("sys/fs/cgroup/job/memory.current", "3145728\n");
  machine.write("sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file 524288\nactive_file 9\n");
  machine.write("sys/fs/cgroup/job/rank/memory.max", "max\n");
  machine.write("sys/fs/cgroup/job/rank/memory.current", "3145728\n");
  CHECK(machine.available() == kMiB + kMiB / 2);
  machine.write("sys/fs/cgroup/job/rank/memory.max", "3145729\n");
  CHECK(machine.available() == 1);
}

TEST_CASE("the group of a container is mounted as the root", "[host_memory]") {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/../of/the/host\n");
  machine.write("sys/fs/cgroup/memory.max", "2097152\n");
  machine.write("sys/fs/cgroup/memory.current", "1048576\n");
  CHECK(machine.available() == kMiB);
}

TEST_CASE("version 1 of control groups is read too", "[host_memory]") {
  const Machine machine;
  machine.write("proc/self/cgroup", "3:cpu,cpuacct:/job\n7:memory:/job\n0::/\n");
  machine.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3145728\n");
  machine.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2097152\n");
  CHECK(machine.available() == kMiB);
  machine.write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 9\n");
  CHECK(machine.available() == kMiB + 9);
}

TEST_CASE("the ranks of a node share its memory", "[host_memory]") {
  CHECK(lack_of_host_memory({{0, 300, 1000}, {0, 400, 1000}, {1, 700, 1000}}).empty());
  CHECK_THAT(lack_of_host_memory({{0, 300, 1000}, {1, 300, 900}, {1, 400, 1000}}),
             Contains("700 bytes of host memory on node 1, which may use 75 % of the 900 bytes"));
  CHECK_FALSE(lack_of_host_memory({{0, 1, 0}}).empty());
}
