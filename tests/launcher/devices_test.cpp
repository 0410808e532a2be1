#include "launcher/devices/devices.hpp"

#include "launcher/options/options.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_machine.hpp"

using namespace mgpu::launcher;
using namespace mgpu::tests;
using Strings = std::vector<std::string>;

namespace {

Strings names(const std::vector<VisibleGpu>& visible) {
  Strings out;
  for (const auto& one : visible) out.push_back(one.name);
  return out;
}

std::vector<int> indices(const std::vector<VisibleGpu>& visible) {
  std::vector<int> out;
  for (const auto& one : visible) out.push_back(one.index);
  return out;
}

std::vector<Gpu> gpus_with(const Strings& uuids) {
  std::vector<Gpu> gpus;
  for (const auto& uuid : uuids) gpus.push_back({static_cast<int>(gpus.size()), "", uuid, ""});
  return gpus;
}

}  // namespace

TEST_CASE("GPUs are found in the kernel's files", "[devices]") {
  FakeMachine machine(four_nodes());
  const auto gpus = find_gpus(machine.roots());
  REQUIRE(gpus.size() == 8);
  CHECK(gpus[3] == Gpu{3, "NVIDIA Made-up 80GB", FakeMachine::uuid_of(3), FakeMachine::bus_of(3)});

  SECTION("without those whose device file is missing in the container") {
    machine.remove("dev/nvidia0");
    machine.remove("dev/nvidia5");
    const auto fewer = find_gpus(machine.roots());
    REQUIRE(fewer.size() == 6);
    CHECK(fewer[0].index == 0);
    CHECK(fewer[0].uuid == FakeMachine::uuid_of(1));
    CHECK(fewer[5].uuid == FakeMachine::uuid_of(7));
  }
  SECTION("without any device file there are none") {
    machine.remove("dev");
    CHECK(find_gpus(machine.roots()).empty());
  }
  SECTION("or counted in /dev if /proc lacks them") {
    machine.remove("proc");
    for (const char* other : {"dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia", "dev/nvidia0x"})
      machine.write(other, "");
    const auto counted = find_gpus(machine.roots());
    REQUIRE(counted.size() == 8);
    CHECK(counted[7] == Gpu{7, "", "", ""});
  }
  SECTION("without those that the driver excludes") {
    machine.write("proc/driver/nvidia/gpus/" + FakeMachine::bus_of(2) + "/information",
                  "Device Minor: 2\nGPU Excluded:\t Yes");
    CHECK(find_gpus(machine.roots()).size() == 7);
  }
  SECTION("an unknown UUID is empty") {
    machine.write("proc/driver/nvidia/gpus/" + FakeMachine::bus_of(0) + "/information",
                  "Model: x\nGPU UUID: GPU-" + std::string(36, '?') + "\nDevice Minor: 0");
    CHECK(find_gpus(machine.roots())[0].uuid.empty());
  }
  SECTION("a PCI domain of five digits is sorted after those of four") {
    machine.write("proc/driver/nvidia/gpus/10000:01:00.0/information", "Device Minor: 3");
    CHECK(find_gpus(machine.roots())[8].bus_id == "10000:01:00.0");
  }
}

TEST_CASE("a machine without GPUs has none", "[devices]") {
  FakeMachine machine({.gpu_nodes = {}});
  CHECK(find_gpus(machine.roots()).empty());
  CHECK(visible_gpus(std::nullopt, {}).empty());
  CHECK(visible_gpus("0,1", {}).empty());
  CHECK(visible_gpus("GPU-1", {}).empty());
  CHECK(visible_gpus("MIG-1", {}).empty());
}

TEST_CASE("CUDA_VISIBLE_DEVICES is read as CUDA reads it", "[devices]") {
  const auto gpus = gpus_with({"GPU-aa11", "GPU-ab22", "GPU-bb33", "GPU-bb44"});
  struct Case {
    std::optional<std::string> list;
    Strings names;
    std::vector<int> indices;
  };
  const auto one = GENERATE(values<Case>({
      {std::nullopt, {"0", "1", "2", "3"}, {0, 1, 2, 3}},
      {"", {}, {}},
      {"2,0", {"2", "0"}, {2, 0}},
      {" 1 , 3 ", {"1", "3"}, {1, 3}},
      {"1st,2nd", {"1", "2"}, {1, 2}},
      // The list ends at the first invalid entry.
      {"-1", {}, {}},
      {"0,-1,1", {"0"}, {0}},
      {"1,4,2", {"1"}, {1}},
      {"1,,2", {"1"}, {1}},
      {"NoDevFiles", {}, {}},
      {"0,1,", {"0", "1"}, {0, 1}},
      {"0,99999999999", {"0"}, {0}},
      // A repeated entry empties the list.
      {"1,1", {}, {}},
      {"GPU-aa,GPU-aa11", {}, {}},
      // Prefixes of UUIDs, if they are unique.
      {"GPU-bb4,GPU-aa", {"GPU-bb4", "GPU-aa"}, {3, 0}},
      {"GPU-aa,GPU-b", {"GPU-aa"}, {0}},
      {"GPU-zz,GPU-aa", {}, {}},
      {"GPU-aa,1", {"GPU-aa"}, {0}},
      {"0,GPU-ab", {"0"}, {0}},
      {"MIG-GPU-ab22/1/0,MIG-GPU-ab22/2/0", {"MIG-GPU-ab22/1/0", "MIG-GPU-ab22/2/0"}, {1, 1}},
      {"MIG-5f3a,MIG-5f3b", {"MIG-5f3a", "MIG-5f3b"}, {-1, -1}},
      {"MIG-5f3a,MIG-5f3a", {}, {}},
      {"MIG-5f3a,0", {"MIG-5f3a"}, {-1}},
  }));
  CAPTURE(one.list.value_or("unset"));
  const auto visible = visible_gpus(one.list, gpus);
  CHECK(names(visible) == one.names);
  CHECK(indices(visible) == one.indices);
}

TEST_CASE("UUIDs are accepted if those of the machine are unknown", "[devices]") {
  CHECK(names(visible_gpus("GPU-a,GPU-b", gpus_with({"", "", ""}))) == Strings{"GPU-a", "GPU-b"});
}

TEST_CASE("--gpus selects GPUs of this machine, and an error names those that exist", "[devices]") {
  const auto gpus = gpus_with({"GPU-aa11", "GPU-ab22", "GPU-bb33"});
  CHECK(names(chosen_gpus({"2", "0"}, gpus)) == Strings{"2", "0"});
  CHECK(indices(chosen_gpus({"GPU-ab", "MIG-GPU-bb33/0/0"}, gpus)) == std::vector<int>{1, 2});

  struct Case {
    Strings wanted;
    int gpus;
    const char* says;
  };
  const auto one = GENERATE(values<Case>({
      {{"3"}, 3, "--gpus 3: this machine has GPUs 0-2; see `mgpu-run devices`"},
      {{"0", "x"}, 3, "--gpus x: this machine has GPUs 0-2; see `mgpu-run devices`"},
      {{"-1"}, 3, "--gpus -1: this machine has GPUs 0-2; see `mgpu-run devices`"},
      {{"99999999999"}, 3, "--gpus 99999999999: this machine has GPUs 0-2; see `mgpu-run devices`"},
      {{"1"}, 1, "--gpus 1: this machine has GPU 0 only; see `mgpu-run devices`"},
      {{"0"}, 0, "--gpus 0: this machine has no usable GPU; see `mgpu-run devices`"},
      {{"GPU-aa"}, 0, "--gpus GPU-aa: this machine has no usable GPU; see `mgpu-run devices`"},
      {{"GPU-zz"}, 3, "--gpus GPU-zz: no GPU has a UUID with this prefix; see `mgpu-run devices`"},
      {{"GPU-a"}, 3, "--gpus GPU-a: 2 GPUs have a UUID with this prefix; write more of the UUID"},
      {{"1", "1"}, 3, "--gpus 1: this GPU is already listed as 1; list it once"},
      {{"1", "GPU-ab"}, 3, "--gpus GPU-ab: this GPU is already listed as 1; list it once"},
  }));
  auto some = gpus;
  some.resize(one.gpus);
  CHECK_THROWS_WITH(chosen_gpus(one.wanted, some), one.says);
}

TEST_CASE("the cores near a GPU are those of its PCI device", "[devices]") {
  FakeMachine machine(four_nodes());
  const auto gpus = find_gpus(machine.roots());
  const auto near = locality_of(gpus[4].bus_id, machine.roots());
  CHECK(near.numa_node == 2);
  CHECK(id_list_text(near.cpus) == "24-35,72-83");
  CHECK(nodes_of({{"7", 7}, {"0", 0}, {"MIG-x", -1}}, gpus, machine.roots()) ==
        std::vector<int>{3, 0, -1});
  CHECK(locality_of("", machine.roots()).numa_node == -1);
  CHECK(locality_of("0000:ff:00.0", machine.roots()).numa_node == -1);
}

TEST_CASE("a PCI address is written in the format of sysfs", "[devices]") {
  CHECK(sysfs_bus_id("00000000:3B:00.0") == "0000:3b:00.0");
  CHECK(sysfs_bus_id("0000:3b:00.0") == "0000:3b:00.0");
  CHECK(sysfs_bus_id("00010000:01:00.0") == "10000:01:00.0");
  CHECK(sysfs_bus_id("") == "");
  CHECK(sysfs_bus_id("odd") == "odd");
}
