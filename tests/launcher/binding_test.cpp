#include "launcher/plan/binding.hpp"

#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/fake_machine.hpp"

using namespace mgpu::launcher;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

Topology all_of(const FakeMachine& machine) {
  return read_topology(machine.roots(), machine.all_cpus(), machine.all_nodes());
}

// Each rank as "cores / memory nodes".
std::vector<std::string> texts(const std::vector<Binding>& all) {
  std::vector<std::string> out;
  for (const auto& one : all)
    out.push_back(id_list_text(one.cpus) + " / " + id_list_text(one.memory_nodes));
  return out;
}

}  // namespace

TEST_CASE("sets of cores are read and written in the kernel's format", "[topology]") {
  CHECK(parse_id_list("0-3,8,10-11\n") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_id_list("").empty());
  CHECK(parse_id_list(" 5, 3,x,3-4,-1") == std::vector<int>{3, 4, 5});
  CHECK(parse_id_list("0-4000000000") == std::vector<int>{0});
  CHECK(parse_id_list("0-2000000000").size() <= 65537);
  CHECK(id_list_text({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  CHECK(id_list_text({}) == "");
  CHECK(in_both({0, 2, 4}, {1, 2, 3, 4}) == std::vector<int>{2, 4});
}

TEST_CASE("a machine's cores are read from sysfs", "[topology]") {
  FakeMachine machine(four_nodes());
  const auto topology = all_of(machine);
  REQUIRE(topology.cpus.size() == 96);
  CHECK(topology.cpus[0] == Cpu{.id = 0, .node = 0, .socket = 0, .core = 0, .cache = 0});
  CHECK(topology.cpus[61] == Cpu{.id = 61, .node = 1, .socket = 0, .core = 13, .cache = 0});
  CHECK(topology.cpus[95] == Cpu{.id = 95, .node = 3, .socket = 1, .core = 47, .cache = 24});
  CHECK(topology.nodes() == std::vector<int>{0, 1, 2, 3});
  CHECK(topology.memory_nodes == std::vector<int>{0, 1, 2, 3});

  SECTION("without cores that this process may not use") {
    const auto ours = read_topology(machine.roots(), {13, 61, 500}, {1, 7});
    REQUIRE(ours.cpus.size() == 2);
    CHECK(ours.cpus[0].core == 13);
    CHECK(ours.memory_nodes == std::vector<int>{1});
  }
  SECTION("a kernel without NUMA and caches counts as one node") {
    machine.remove("sys/devices/system/node");
    for (int cpu = 0; cpu < 96; ++cpu)
      machine.remove("sys/devices/system/cpu/cpu" + std::to_string(cpu));
    const auto bare = all_of(machine);
    REQUIRE(bare.cpus.size() == 96);
    CHECK(bare.nodes() == std::vector<int>{0});
    CHECK(bare.cpus[61].core == 61);
    CHECK(bare.cpus[61].cache == bare.cpus[0].cache);
    CHECK(bare.memory_nodes.empty());
  }
}

TEST_CASE("ranks are bound to the cores near their GPU", "[binding]") {
  using enum NumaBinding;
  struct Case {
    FakeMachine::Shape shape;
    NumaBinding mode;
    std::vector<std::string> expected;
  };
  const auto one = GENERATE(values<Case>({
      {desktop(), node, {"0-15 / 0"}},
      {desktop(), socket, {"0-15 / 0"}},
      {desktop(), exclusive, {"0-15 / 0"}},
      {desktop(), core_complex, {"0-15 / 0"}},
      {four_nodes(),
       node,
       {"0-11,48-59 / 0", "0-11,48-59 / 0", "12-23,60-71 / 1", "12-23,60-71 / 1", "24-35,72-83 / 2",
        "24-35,72-83 / 2", "36-47,84-95 / 3", "36-47,84-95 / 3"}},
      {four_nodes(),
       socket,
       {"0-23,48-71 / 0-1", "0-23,48-71 / 0-1", "0-23,48-71 / 0-1", "0-23,48-71 / 0-1",
        "24-47,72-95 / 2-3", "24-47,72-95 / 2-3", "24-47,72-95 / 2-3", "24-47,72-95 / 2-3"}},
      {four_nodes(),
       exclusive,
       {"0-5,48-53 / 0", "6-11,54-59 / 0", "12-17,60-65 / 1", "18-23,66-71 / 1", "24-29,72-77 / 2",
        "30-35,78-83 / 2", "36-41,84-89 / 3", "42-47,90-95 / 3"}},
      // The cache is larger than the node, so only the node's part of it is used.
      {four_nodes(),
       core_complex,
       {"0-11,48-59 / 0", "0-11,48-59 / 0", "12-23,60-71 / 1", "12-23,60-71 / 1", "24-35,72-83 / 2",
        "24-35,72-83 / 2", "36-47,84-95 / 3", "36-47,84-95 / 3"}},
      {epyc(),
       node,
       {"0-31,64-95 / 0", "0-31,64-95 / 0", "0-31,64-95 / 0", "0-31,64-95 / 0", "32-63,96-127 / 1",
        "32-63,96-127 / 1", "32-63,96-127 / 1", "32-63,96-127 / 1"}},
      {epyc(),
       socket,
       {"0-31,64-95 / 0", "0-31,64-95 / 0", "0-31,64-95 / 0", "0-31,64-95 / 0", "32-63,96-127 / 1",
        "32-63,96-127 / 1", "32-63,96-127 / 1", "32-63,96-127 / 1"}},
      {epyc(),
       exclusive,
       {"0-7,64-71 / 0", "8-15,72-79 / 0", "16-23,80-87 / 0", "24-31,88-95 / 0", "32-39,96-103 / 1",
        "40-47,104-111 / 1", "48-55,112-119 / 1", "56-63,120-127 / 1"}},
      {epyc(),
       core_complex,
       {"0-3,64-67 / 0", "4-7,68-71 / 0", "8-11,72-75 / 0", "12-15,76-79 / 0", "32-35,96-99 / 1",
        "36-39,100-103 / 1", "40-43,104-107 / 1", "44-47,108-111 / 1"}},
  }));
  FakeMachine machine(one.shape);
  const int ranks = static_cast<int>(one.expected.size());
  CHECK(texts(bindings(one.mode, ranks, one.shape.gpu_nodes, all_of(machine))) == one.expected);
}

TEST_CASE("ranks without a GPU are spread over the nodes", "[binding]") {
  FakeMachine machine(four_nodes());
  const auto topology = all_of(machine);
  using enum NumaBinding;
  CHECK(texts(bindings(node, 2, {}, topology)) ==
        std::vector<std::string>{"0-11,48-59 / 0", "24-35,72-83 / 2"});
  CHECK(texts(bindings(exclusive, 6, {}, topology)) ==
        std::vector<std::string>{"0-5,48-53 / 0", "6-11,54-59 / 0", "12-23,60-71 / 1",
                                 "24-29,72-77 / 2", "30-35,78-83 / 2", "36-47,84-95 / 3"});
  CHECK(texts(bindings(node, 1, {-1}, topology)) == std::vector<std::string>{"0-11,48-59 / 0"});
  CHECK(bindings(none, 8, {}, topology).empty());
}

TEST_CASE("exclusive binding gives no core to two ranks and splits no core", "[binding]") {
  const auto shape = GENERATE(values<FakeMachine::Shape>({desktop(), four_nodes(), epyc()}));
  const bool with_gpus = GENERATE(true, false);
  const int ranks = GENERATE(range(1, 9));
  FakeMachine machine(shape);
  const auto topology = all_of(machine);
  const auto gpus = with_gpus ? shape.gpu_nodes : std::vector<int>();
  std::set<int> taken;
  size_t given = 0;
  for (const auto& binding : bindings(NumaBinding::exclusive, ranks, gpus, topology)) {
    CHECK_FALSE(binding.cpus.empty());
    given += binding.cpus.size();
    taken.insert(binding.cpus.begin(), binding.cpus.end());
    for (const int cpu : binding.cpus) {
      const int sibling = (cpu + machine.cores()) % machine.logical();
      CHECK(std::binary_search(binding.cpus.begin(), binding.cpus.end(), sibling));
    }
  }
  CHECK(taken.size() == given);
}

TEST_CASE("cores that do not divide evenly go to the first ranks", "[binding]") {
  FakeMachine machine({.cores_per_node = 8, .threads = 1, .cores_per_cache = 8});
  CHECK(texts(bindings(NumaBinding::exclusive, 3, {}, all_of(machine))) ==
        std::vector<std::string>{"0-2 / 0", "3-5 / 0", "6-7 / 0"});
}

TEST_CASE("GPUs without a rank keep their share of the cores", "[binding]") {
  FakeMachine machine(epyc());
  CHECK(texts(bindings(NumaBinding::exclusive, 2, epyc().gpu_nodes, all_of(machine))) ==
        std::vector<std::string>{"0-7,64-71 / 0", "8-15,72-79 / 0"});
}

TEST_CASE("ranks that share a GPU divide its cores", "[binding]") {
  FakeMachine machine({.cores_per_node = 8, .threads = 1, .cores_per_cache = 2});
  const auto topology = all_of(machine);
  CHECK(texts(bindings(NumaBinding::exclusive, 4, {0, 0}, topology)) ==
        std::vector<std::string>{"0-1 / 0", "4-5 / 0", "2-3 / 0", "6-7 / 0"});
  SECTION("and take turns when there are fewer caches than ranks") {
    const auto held = texts(bindings(NumaBinding::core_complex, 5, {}, topology));
    CHECK(held == std::vector<std::string>{"0-1 / 0", "2-3 / 0", "4-5 / 0", "6-7 / 0", "0-1 / 0"});
  }
}

TEST_CASE("the cpuset of this process limits every binding", "[binding]") {
  FakeMachine machine(epyc());
  // One and a half caches of node 0 and nothing of node 1.
  const auto ours = read_topology(machine.roots(), parse_id_list("2-7,66-71"), {0});
  CHECK(texts(bindings(NumaBinding::node, 1, {0}, ours)) ==
        std::vector<std::string>{"2-7,66-71 / 0"});
  CHECK(texts(bindings(NumaBinding::core_complex, 2, {0, 0}, ours)) ==
        std::vector<std::string>{"4-7,68-71 / 0", "2-3,66-67 / 0"});
  CHECK_THROWS_WITH(bindings(NumaBinding::node, 2, {0, 1}, ours),
                    Contains("none of the cores of NUMA node 1 is ours"));
  CHECK_THROWS_WITH(bindings(NumaBinding::exclusive, 7, {}, ours),
                    Contains("NUMA node 0 has 6 cores of ours for 7"));
  CHECK_THROWS_WITH(bindings(NumaBinding::node, 1, {}, Topology{}), Contains("--numa-binding"));
}

TEST_CASE("a node without memory binds cores only", "[binding]") {
  FakeMachine machine(desktop());
  machine.write("sys/devices/system/node/has_memory", "");
  CHECK(texts(bindings(NumaBinding::node, 1, {}, all_of(machine))) ==
        std::vector<std::string>{"0-15 / "});
}

TEST_CASE("a thread that applies a binding runs on those cores only", "[binding]") {
  const auto ours = own_topology({});
  REQUIRE_FALSE(ours.cpus.empty());
  const int last = ours.cpus.back().id;
  int error = -1;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::thread([&] {
    error = BindingMask(Binding{{last}, ours.memory_nodes}).apply();
    ::sched_getaffinity(0, sizeof mask, &mask);
  }).join();
  CHECK(error == 0);
  CHECK(CPU_COUNT(&mask) == 1);
  CHECK(CPU_ISSET(last, &mask));
}

TEST_CASE("binding to missing cores fails with the system's errno", "[binding]") {
  int error = 0;
  std::thread([&] { error = BindingMask(Binding{{8191}, {}}).apply(); }).join();
  CHECK(error == EINVAL);
  CHECK(BindingMask(Binding{}).apply() == 0);
}
