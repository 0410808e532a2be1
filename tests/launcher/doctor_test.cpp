#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/doctor/checks.hpp"
#include "launcher/doctor/command.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;

namespace {

DeviceReport::Entry gpu(int index) {
  DeviceReport::Entry entry;
  entry.gpu = {index, "NVIDIA H200", "", ""};
  entry.capability = "9.0";
  entry.memory_total = 140 * kGiB;
  return entry;
}

// Two GPUs, and everything is in order.
DoctorFacts healthy() {
  DoctorFacts facts;
  facts.devices.driver = "580.95.05";
  facts.devices.gpus = {gpu(0), gpu(1)};
  facts.devices.links = {{"X", "NV18"}, {"NV18", "X"}};
  facts.devices.peers = {{true, true}, {true, true}};
  facts.health.resize(2);
  facts.driver_cuda = 13000;
  facts.device_files = true;
  facts.torch = {.folder = "/t/lib",
                 .by = "mgpu-train",
                 .version = "2.11.0+cu130",
                 .cuda = "13.0",
                 .has_cuda_library = true,
                 .cudart = "13.0.96",
                 .nccl = "2.28.9"};
  facts.trainer = {.path = "/bin/mgpu-train", .output = "mgpu-train 0.1.0\n"};
  facts.our_version = "0.1.0";
  facts.interfaces = {{"eth0", {"10.0.0.2"}}};
  facts.disks = {{.what = "current folder", .path = "/w", .total = 100 * kGiB, .free = 50 * kGiB}};
  facts.shared_memory = {
      .what = "shared memory", .path = "/dev/shm", .total = 64 * kGiB, .free = 64 * kGiB};
  facts.memory = {.total = 256 * kGiB, .available = 200 * kGiB};
  facts.limits.open_files = 1024;
  return facts;
}

DoctorFacts without_gpus() {
  auto facts = healthy();
  facts.devices = {};
  facts.devices.shortfall = "libnvidia-ml.so.1 not found on this machine";
  facts.health.clear();
  facts.device_files = false;
  facts.driver_cuda = 0;
  return facts;
}

// The finding of that name; fails the test if there is none.
Finding found(const DoctorFacts& facts, const std::string& check) {
  const auto all = examine(facts);
  const auto one = std::find_if(all.begin(), all.end(),
                                [&](const Finding& finding) { return finding.check == check; });
  CAPTURE(check);
  REQUIRE(one != all.end());
  return *one;
}

bool is_found(const DoctorFacts& facts, const std::string& check) {
  const auto all = examine(facts);
  return std::any_of(all.begin(), all.end(),
                     [&](const Finding& finding) { return finding.check == check; });
}

}  // namespace

TEST_CASE("a healthy machine passes all checks without advice", "[doctor]") {
  const auto all = examine(healthy());
  CHECK(all.size() == 13);
  for (const auto& finding : all) {
    CAPTURE(finding.check, finding.text);
    CHECK(finding.verdict == Verdict::pass);
    CHECK(finding.advice.empty());
  }
}

TEST_CASE("every check that does not pass gives advice", "[doctor]") {
  auto facts = healthy();
  facts.devices.gpus[0].memory_used = 30 * kGiB;
  facts.devices.gpus[1].capability = "7.5";
  facts.devices.peers = {{true, false}, {false, true}};
  facts.health[1] = {.uncorrected_errors = 2,
                     .remapping_failed = true,
                     .compute_prohibited = true,
                     .mig = true,
                     .slowdown = 0x40};
  facts.driver_cuda = 12040;
  facts.torch.nccl.clear();
  facts.trainer.status = 1;
  facts.any_port.error = "x";
  facts.wanted_port = PortFacts{29500, "cannot bind it: Address already in use"};
  facts.variables = {{"NCCL_SOCKET_IFNAME", "ib"}, {"NCCL_P2P_DISABLE", "1"}};
  facts.fabric = {{"mlx5_0", false}};
  facts.disks[0].free = kMiB;
  facts.shared_memory.free = 64 * kMiB;
  facts.memory.oom_kills = 1;
  facts.limits.open_files = 200;
  int wrong = 0;
  for (const auto& finding : examine(facts)) {
    CAPTURE(finding.check, finding.text);
    CHECK(finding.advice.empty() == (finding.verdict == Verdict::pass));
    wrong += finding.verdict != Verdict::pass;
  }
  CHECK(wrong == 20);
}

TEST_CASE("a machine without GPUs passes for jobs on CPUs", "[doctor]") {
  const auto facts = without_gpus();
  CHECK(found(facts, "driver").verdict == Verdict::warn);
  CHECK_THAT(found(facts, "driver").text, Contains("jobs run on CPUs"));
  CHECK_FALSE(is_found(facts, "gpus"));
  CHECK_FALSE(is_found(facts, "p2p"));
}

TEST_CASE("a loaded driver that NVML cannot reach is a failure", "[doctor]") {
  auto facts = without_gpus();
  facts.device_files = true;
  facts.devices.shortfall = "cannot initialize NVML: Driver/library version mismatch";
  const auto finding = found(facts, "driver");
  CHECK(finding.verdict == Verdict::fail);
  CHECK_THAT(finding.text, Contains("version mismatch"));
  CHECK_THAT(finding.advice, Contains("restart the machine"));
  facts.devices.shortfall.clear();
  facts.nvml_timed_out = true;
  CHECK(found(facts, "driver").verdict == Verdict::fail);
}

TEST_CASE("GPUs hidden by CUDA_VISIBLE_DEVICES are not checked", "[doctor]") {
  auto facts = healthy();
  facts.cuda_visible_devices = "0";
  facts.devices.gpus[1].visible = false;
  facts.health[1].remapping_failed = true;
  facts.devices.peers = {{true, false}, {false, true}};
  CHECK(found(facts, "gpus").text == "2 NVIDIA H200; CUDA_VISIBLE_DEVICES=0 shows 1");
  CHECK_FALSE(is_found(facts, "gpu 1 memory cells"));
  CHECK_FALSE(is_found(facts, "p2p"));
  facts.devices.gpus[0].visible = false;
  CHECK(found(facts, "gpus").verdict == Verdict::warn);
}

TEST_CASE("GPUs are checked one by one", "[doctor]") {
  auto facts = healthy();
  facts.devices.gpus[1].memory_used = 30 * kGiB;
  CHECK(found(facts, "gpu 1 memory").text == "30.0 GiB of 140.0 GiB in use");
  CHECK_FALSE(is_found(facts, "gpu 0 memory"));
  struct Case {
    Nvml::Health health;
    const char* check;
    Verdict verdict;
  };
  const auto [health, check, verdict] = GENERATE(values<Case>({
      {{.uncorrected_errors = 1}, "gpu 1 ECC", Verdict::warn},
      {{.remapping_pending = true}, "gpu 1 memory cells", Verdict::warn},
      {{.remapping_failed = true}, "gpu 1 memory cells", Verdict::fail},
      {{.compute_prohibited = true}, "gpu 1 mode", Verdict::fail},
      {{.mig = true}, "gpu 1 mode", Verdict::warn},
      {{.slowdown = 0x20}, "gpu 1 clocks", Verdict::warn},
      {{.slowdown = 0x8}, "gpu 1 clocks", Verdict::warn},
  }));
  facts.health[1] = health;
  CHECK(found(facts, check).verdict == verdict);
  facts.health[1] = {.slowdown = 0x1 | 0x4};  // idle or at the power limit
  CHECK_FALSE(is_found(facts, check));
}

TEST_CASE("pairs without P2P are named", "[doctor]") {
  auto facts = healthy();
  CHECK(found(facts, "p2p").text == "P2P between all pairs, NV18");
  facts.devices.links = {{"X", "PHB"}, {"PHB", "X"}};
  CHECK(found(facts, "p2p").text == "P2P between all pairs, PHB (no NVLink)");
  facts.devices.peers = {{true, true}, {false, true}};
  CHECK(found(facts, "p2p").verdict == Verdict::warn);
  CHECK(found(facts, "p2p").text == "no P2P between GPUs 0-1 (connected by PHB)");
}

TEST_CASE("GPUs of different models are reported", "[doctor]") {
  auto facts = healthy();
  facts.devices.gpus[1].gpu.name = "NVIDIA A100";
  CHECK(found(facts, "gpus").text == "1 NVIDIA H200, 1 NVIDIA A100: different models");
  CHECK(found(facts, "gpus").verdict == Verdict::warn);
}

TEST_CASE("LibTorch's CUDA version must be one that the driver supports", "[doctor]") {
  struct Case {
    int driver;
    const char* torch;
    Verdict verdict;
  };
  const auto [driver, torch, verdict] = GENERATE(values<Case>({
      {13000, "13.0", Verdict::pass},
      {13000, "13.2", Verdict::pass},  // minor versions are compatible
      {13020, "12.8", Verdict::pass},
      {12080, "13.0", Verdict::fail},
      {12080, "", Verdict::pass},
      {12080, "13", Verdict::fail},
      {0, "13.0", Verdict::pass},
  }));
  CAPTURE(driver, torch);
  auto facts = healthy();
  facts.driver_cuda = driver;
  facts.torch.cuda = torch;
  CHECK(found(facts, "cuda").verdict == verdict);
}

TEST_CASE("a LibTorch for CPUs is enough without GPUs", "[doctor]") {
  auto facts = healthy();
  facts.torch.has_cuda_library = false;
  CHECK(found(facts, "libtorch").verdict == Verdict::warn);
  CHECK_FALSE(is_found(facts, "nccl"));
  auto cpu = without_gpus();
  cpu.torch.has_cuda_library = false;
  CHECK(found(cpu, "libtorch").verdict == Verdict::pass);
  cpu.torch = {};
  CHECK(found(cpu, "libtorch").verdict == Verdict::warn);
}

TEST_CASE("mgpu-train must run and have the version of mgpu-run", "[doctor]") {
  auto facts = healthy();
  CHECK(found(facts, "mgpu-train").text == "mgpu-train 0.1.0 in /bin/mgpu-train");
  SECTION("a missing library is reported with the loader's message") {
    facts.trainer.status = 127;
    facts.trainer.output =
        "first\n/bin/mgpu-train: error while loading shared libraries: libtorch_cuda.so: cannot "
        "open shared object file\n";
    CHECK(found(facts, "mgpu-train").verdict == Verdict::fail);
    CHECK_THAT(found(facts, "mgpu-train").text,
               Contains("exited with status 127: /bin/mgpu-train: error"));
    CHECK_THAT(found(facts, "mgpu-train").advice, Contains("rebuild it"));
  }
  SECTION("another version is a warning") {
    facts.trainer.output = "mgpu-train 0.0.9\n";
    CHECK(found(facts, "mgpu-train").verdict == Verdict::warn);
  }
  SECTION("a program that hangs is a failure") {
    facts.trainer.timed_out = true;
    CHECK(found(facts, "mgpu-train").verdict == Verdict::fail);
  }
  SECTION("a missing mgpu-train is a warning, since scripts run without it") {
    facts.trainer = {};
    CHECK(found(facts, "mgpu-train").verdict == Verdict::warn);
  }
}

TEST_CASE("the interface selected for NCCL must exist", "[doctor]") {
  struct Case {
    const char* list;
    bool fits;
  };
  const auto [list, fits] = GENERATE(values<Case>({
      {"eth0", true},
      {"eth", true},
      {"ib,eth", true},
      {"=eth0", true},
      {"=eth", false},
      {"ib0", false},
      {"lo", true},
      {"^lo,docker", true},
      {"^lo,eth", false},
      {"^=eth0", true},  // leaves lo
  }));
  CAPTURE(list);
  auto facts = healthy();
  facts.variables["NCCL_SOCKET_IFNAME"] = list;
  CHECK(is_found(facts, "NCCL_SOCKET_IFNAME") == !fits);
}

TEST_CASE("variables that slow a job down are reported", "[doctor]") {
  auto facts = healthy();
  facts.variables["NCCL_P2P_DISABLE"] = "0";
  CHECK_FALSE(is_found(facts, "NCCL_P2P_DISABLE"));
  facts.variables["NCCL_P2P_DISABLE"] = "1";
  CHECK(found(facts, "NCCL_P2P_DISABLE").verdict == Verdict::warn);
}

TEST_CASE("InfiniBand needs an active port and locked memory", "[doctor]") {
  auto facts = healthy();
  CHECK_FALSE(is_found(facts, "infiniband"));
  facts.fabric = {{"mlx5_0", true}, {"mlx5_1", false}};
  CHECK(found(facts, "infiniband").text == "mlx5_0 active");
  facts.limits.locked_memory = 8 * kMiB;
  CHECK(found(facts, "infiniband").verdict == Verdict::warn);
  facts.fabric = {{"mlx5_1", false}};
  CHECK(found(facts, "infiniband").text == "no port is active");
}

TEST_CASE("a requested port must be free", "[doctor]") {
  auto facts = healthy();
  CHECK_FALSE(is_found(facts, "port 29500"));
  facts.wanted_port = PortFacts{.port = 29500};
  CHECK(found(facts, "port 29500").verdict == Verdict::pass);
  facts.wanted_port->error = "cannot bind it: Address already in use";
  CHECK(found(facts, "port 29500").verdict == Verdict::fail);
}

TEST_CASE("disks are checked by their free space", "[doctor]") {
  struct Case {
    DiskFacts disk;
    Verdict verdict;
  };
  const auto full = [](const char* what, std::uint64_t free) {
    return DiskFacts{.what = what, .path = "/x", .total = 100 * kGiB, .free = free};
  };
  auto read_only = full("current folder", 50 * kGiB);
  read_only.writable = false;
  auto no_inodes = full("current folder", 50 * kGiB);
  no_inodes.free_inodes = 0.001;
  auto gone = full("Hub cache", 0);
  gone.timed_out = true;
  auto absent = full("Hub cache", 0);
  absent.error = "Permission denied";
  const std::vector<Case> cases = {
      {full("current folder", 50 * kGiB), Verdict::pass},
      {full("current folder", 10 * kGiB), Verdict::warn},
      {full("current folder", 100 * kMiB), Verdict::fail},
      {full("Hub cache", 100 * kMiB), Verdict::warn},
      {full("temporary files", 2 * kGiB), Verdict::pass},
      {full("temporary files", kMiB), Verdict::fail},
      {read_only, Verdict::warn},
      {no_inodes, Verdict::warn},
      {gone, Verdict::fail},
      {absent, Verdict::warn},
  };
  for (const auto& [disk, verdict] : cases) {
    auto facts = healthy();
    facts.disks = {disk};
    CAPTURE(disk.what, disk.free);
    CHECK(found(facts, "disk: " + disk.what).verdict == verdict);
  }
}

TEST_CASE("a small /dev/shm in a container is reported", "[doctor]") {
  auto facts = healthy();
  facts.shared_memory.total = facts.shared_memory.free = 64 * kMiB;
  CHECK(found(facts, "shared memory").verdict == Verdict::warn);
  CHECK(found(facts, "shared memory").text == "64.0 MiB of 64.0 MiB free in /dev/shm");
  CHECK_THAT(found(facts, "shared memory").advice, Contains("--shm-size"));
  facts.shared_memory.writable = false;
  CHECK(found(facts, "shared memory").verdict == Verdict::fail);
}

TEST_CASE("available memory is limited by the machine and the cgroup", "[doctor]") {
  auto facts = healthy();
  CHECK(found(facts, "memory").text == "200.0 GiB of 256.0 GiB free");
  facts.memory.cgroup_limit = kGiB;
  CHECK(found(facts, "memory").verdict == Verdict::warn);
  CHECK_THAT(found(facts, "memory").text, Contains("limited to 1.0 GiB by the cgroup"));
  facts.memory.cgroup_limit = 8 * kGiB;
  CHECK(found(facts, "memory").verdict == Verdict::pass);
  facts.memory.oom_kills = 2;
  CHECK(found(facts, "memory").verdict == Verdict::warn);
}

TEST_CASE("the limit on open files is the one that ranks get", "[doctor]") {
  auto facts = healthy();
  facts.limits.open_files = 512;
  facts.limits.open_files_hard = 4096;
  CHECK(found(facts, "open files") ==
        Finding{"open files", Verdict::warn, "512 per rank", "run ulimit -n 4096"});
  facts.limits.open_files = 100;
  CHECK(found(facts, "open files").verdict == Verdict::fail);
  facts.limits.open_files_hard = 100;  // ulimit -n cannot raise it
  CHECK(found(facts, "open files").text == "100 per rank, and the hard limit is 100");
  CHECK_THAT(found(facts, "open files").advice, Contains("limits.conf"));
  CHECK_THAT(found(facts, "open files").advice, Contains("--ulimit nofile=65536"));
  facts.limits.open_files.reset();
  CHECK(found(facts, "open files").text == "no limit");
}

TEST_CASE("findings are shown one per line with advice below", "[doctor]") {
  const std::vector<Finding> findings = {
      {"ports", Verdict::pass, "ranks can meet", ""},
      {"gpu 1 memory", Verdict::warn, "30 GiB\033[2J are in use", "see `nvidia-smi`"},
      {"x", Verdict::fail, std::string(60, 'a') + " " + std::string(30, 'b'), "c"}};
  CHECK(doctor_text(findings) ==
        "PASS  ports         ranks can meet\n"
        "WARN  gpu 1 memory  30 GiB [2J are in use\n"
        "                    -> see `nvidia-smi`\n"
        "FAIL  x             " +
            std::string(60, 'a') + "\n                    " + std::string(30, 'b') +
            "\n                    -> c\n"
            "1 passed, 1 warning, 1 failed\n");
}

TEST_CASE("findings are printed as JSON", "[doctor]") {
  const auto all = nlohmann::json::parse(
      doctor_json({{"ports", Verdict::pass, "well", ""}, {"x", Verdict::fail, "no \xFF", "do"}}));
  CHECK(all["passed"] == 1);
  CHECK(all["warnings"] == 0);
  CHECK(all["failed"] == 1);
  CHECK(all["checks"][0] ==
        nlohmann::json::parse(R"({"check":"ports","verdict":"PASS","text":"well","advice":""})"));
}
