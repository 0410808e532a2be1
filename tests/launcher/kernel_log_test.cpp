#include "launcher/ranks/kernel_log.hpp"

#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using mgpu::launcher::KernelLog;

TEST_CASE("an Xid of the hardware is found in the kernel's log", "[kernel_log]") {
  const mgpu::tests::TempDir dir;
  const std::string path = dir.path("kmsg");
  std::ofstream file(path);
  const auto write = [&](const char* record) { file << record << '\n' << std::flush; };
  const char* const fault = "4,7,98,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus";
  write(fault);
  KernelLog log(path);
  log.begin_attempt();

  SECTION("but not one from before the attempt") {
    CHECK(log.gpu_fault().empty());
  }
  SECTION("but not one that a program has caused") {
    write("4,8,99,-;NVRM: Xid (PCI:0000:17:00): 31, pid=7, MMU Fault");
    CHECK(log.gpu_fault().empty());
  }
  SECTION("without the fields before its text") {
    write("6,8,99,-;usb 1-1: new device");
    write(fault);
    write(" SUBSYSTEM=pci");
    CHECK(log.gpu_fault() == "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus");
  }
}

TEST_CASE("the kernel's log names the processes that the OOM killer has killed", "[kernel_log]") {
  const mgpu::tests::TempDir dir;
  const std::string path = dir.path("kmsg");
  std::ofstream file(path);
  const std::string kill =
      "3,812,991,-;Memory cgroup out of memory: Killed process 4711 (pt_data (1)) "
      "total-vm:1064032kB, anon-rss:2048kB, file-rss:1024kB, shmem-rss:1024kB, UID:0 "
      "pgtables:348kB "
      "oom_score_adj:0";
  file << kill << '\n' << std::flush;
  KernelLog log(path);
  log.begin_attempt();
  CHECK(log.oom_kills().empty());
  file
      << "6,813,992,-;Tasks state (memory values in pages):\n"
      << "6,813,992,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
         "oom_memcg=/pod,task_memcg=/pod/mgpu-7-a/attempt_0/rank_1,task=pt_data,pid=4711,uid=0\n"
      << kill << '\n'
      << "3,814,993,-;Out of memory: Killed process 12 (sh) total-vm:4kB, anon-rss:4kB, "
         "file-rss:0kB\n"
      << "4,815,994,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus\n"
      << std::flush;
  CHECK_FALSE(log.gpu_fault().empty());  // reads all of it
  const auto& kills = log.oom_kills();
  REQUIRE(kills.size() == 2);
  CHECK(kills[0].pid == 4711);
  CHECK(kills[0].name == "pt_data (1)");
  CHECK(kills[0].bytes == 4u << 20);
  CHECK(kills[0].cgroup == "/pod/mgpu-7-a/attempt_0/rank_1");
  CHECK(kills[1].pid == 12);
  CHECK(kills[1].cgroup.empty());
  log.begin_attempt();
  CHECK(log.oom_kills().empty());
}

TEST_CASE("an OOM kill in the log of a kernel before 5.3 is found", "[kernel_log]") {
  const mgpu::tests::TempDir dir;
  const std::string path = dir.path("kmsg");
  std::ofstream file(path);
  KernelLog log(path);
  log.begin_attempt();
  file << "3,812,991,-;Memory cgroup out of memory: Kill process 4711 (python3) score 990 or "
          "sacrifice child\n"
       << "3,813,992,-;Killed process 4711 (python3) total-vm:1064032kB, anon-rss:2048kB, "
          "file-rss:1024kB, shmem-rss:1024kB\n"
       << "6,814,993,-;oom_reaper: reaped process 4711 (python3), now anon-rss:0kB, "
          "file-rss:0kB, shmem-rss:0kB\n"
       << std::flush;
  CHECK(log.gpu_fault().empty());  // reads all of it
  const auto& kills = log.oom_kills();
  REQUIRE(kills.size() == 1);
  CHECK(kills[0].pid == 4711);
  CHECK(kills[0].bytes == 4u << 20);
}

TEST_CASE("a kernel log that cannot be read has no faults", "[kernel_log]") {
  KernelLog log("/nonexistent/kmsg");
  log.begin_attempt();
  CHECK(log.gpu_fault().empty());
}
