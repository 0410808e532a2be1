#include "launcher/devices/devices_command.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.hpp"
#include "tests/support/fake_machine.hpp"
#include "tests/support/loaded_nvml.hpp"

using namespace mgpu::launcher;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("devices are shown as a table", "[devices][nvml]") {
  FakeMachine machine(four_nodes());
  LoadedNvml nvml("2", "switch");
  CHECK(devices_text(report_devices(machine.roots(), "1")) ==
        "GPU  name                 memory in use    capability  NUMA node  cores       PCI         "
        "  visible\n"
        "0    NVIDIA Made-up 80GB  0.0 of 80.0 GiB  9.0         0          0-11,48-59  "
        "0000:10:00.0  no\n"
        "1    NVIDIA Made-up 80GB  1.0 of 80.0 GiB  9.0         0          0-11,48-59  "
        "0000:11:00.0  yes\n"
        "GPU 0 is GPU-00000000-aaaa-bbbb-cccc-000000000000\n"
        "GPU 1 is GPU-10000000-aaaa-bbbb-cccc-000000000000\n"
        "\n"
        "GPU  0     1\n"
        "0    X     NV18\n"
        "1    NV18  X\n"
        "P2P between all pairs\n"
        "driver 570.1.2\n");
}

TEST_CASE("links between GPUs are shown in nvidia-smi's terms", "[devices][nvml]") {
  FakeMachine machine(four_nodes());
  using Row = std::vector<std::string>;
  SECTION("direct links are counted by pair") {
    LoadedNvml nvml("4", "pairs");
    const auto report = report_devices(machine.roots(), std::nullopt);
    CHECK(report.links[0] == Row{"X", "NV4", "PXB", "PHB"});
    CHECK(report.links[2] == Row{"PXB", "PIX", "X", "NV4"});
    CHECK(report.peers[0] == std::vector<bool>{true, true, false, false});
    CHECK_THAT(devices_text(report), Contains("no P2P between GPU 1 and GPU 2\n"));
  }
  SECTION("without links the PCI path is shown") {
    LoadedNvml nvml("8", "");
    const auto report = report_devices(machine.roots(), std::nullopt);
    CHECK(report.links[0] == Row{"X", "PIX", "PXB", "PHB", "NODE", "SYS", "SYS", "SYS"});
  }
}

TEST_CASE("devices are printed as JSON", "[devices][nvml]") {
  FakeMachine machine(four_nodes());
  LoadedNvml nvml("8", "switch");
  const auto all = nlohmann::json::parse(devices_json(report_devices(machine.roots(), "2,3")));
  REQUIRE(all["gpus"].size() == 8);
  CHECK(all["gpus"][2] == nlohmann::json::parse(R"({
      "index": 2, "name": "NVIDIA Made-up 80GB",
      "uuid": "GPU-20000000-aaaa-bbbb-cccc-000000000000", "pci_bus_id": "0000:12:00.0",
      "memory_total_bytes": 85899345920, "memory_used_bytes": 2147483648,
      "compute_capability": "9.0", "numa_node": 1, "cores": "12-23,60-71", "visible": true})"));
  CHECK(all["gpus"][0]["visible"] == false);
  CHECK(all["links"][7][0] == "NV18");
  CHECK(all["p2p"][7][0] == true);
  CHECK(all["driver"] == "570.1.2");
}

TEST_CASE("without NVML the devices are read from the kernel's files", "[devices][nvml]") {
  FakeMachine machine(four_nodes());
  LoadedNvml nvml(nullptr, "");
  const auto text = devices_text(report_devices(machine.roots(), std::nullopt));
  CHECK_THAT(text, Contains("7    NVIDIA Made-up 80GB  -              -           3"));
  CHECK_THAT(text, Contains("links are not known: cannot start NVML: Driver Not Loaded\n"));
}

TEST_CASE("a machine without GPUs gives one line and no failure", "[devices][nvml]") {
  FakeMachine machine({.gpu_nodes = {}});
  {
    LoadedNvml nvml(nullptr, "");
    CHECK(devices_text(report_devices(machine.roots(), std::nullopt)) ==
          "no GPUs: cannot start NVML: Driver Not Loaded; jobs run on CPUs\n");
  }
  LoadedNvml nvml("0", "");
  CHECK(devices_text(report_devices(machine.roots(), std::nullopt)) ==
        "no GPUs: the NVIDIA driver shows none; jobs run on CPUs\n");
  Options options;
  std::ostringstream out;
  CHECK(run_devices_command(options, out) == 0);
  CHECK(out.str() == "no GPUs: the NVIDIA driver shows none; jobs run on CPUs\n");
  options.json = true;
  std::ostringstream json;
  CHECK(run_devices_command(options, json) == 0);
  CHECK(nlohmann::json::parse(json.str())["gpus"].empty());
}
