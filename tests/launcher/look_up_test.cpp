#include "launcher/plan/look_up.hpp"

#include <map>

#include "tests/support/catch.hpp"
#include "tests/support/fake_machine.hpp"

using namespace mgpu::launcher;
using namespace mgpu::tests;
using Strings = std::vector<std::string>;

namespace {

NodeFacts look_up(const Options& options, const FakeMachine& machine,
                  const std::map<std::string, std::string>& environment = {}) {
  return look_up_node(options, machine.roots(), [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("a node starts one rank for each GPU that it may use", "[look_up]") {
  FakeMachine machine(four_nodes());
  Options options;
  CHECK(look_up(options, machine).nproc == 8);
  CHECK(look_up(options, machine, {{"CUDA_VISIBLE_DEVICES", "5,2"}}).nproc == 2);
  CHECK(look_up(options, machine, {{"CUDA_VISIBLE_DEVICES", "5,2"}}).facts.gpus ==
        Strings{"5", "2"});
  CHECK(look_up(options, machine, {{"CUDA_VISIBLE_DEVICES", ""}}).nproc == 1);

  SECTION("--gpus takes precedence over CUDA_VISIBLE_DEVICES") {
    options.gpus = Strings{"7", "6", "1"};
    const auto node = look_up(options, machine, {{"CUDA_VISIBLE_DEVICES", "0"}});
    CHECK(node.nproc == 3);
    CHECK(node.facts.gpus == Strings{"7", "6", "1"});
  }
  SECTION("more ranks than GPUs is a usage error, but not on CPUs") {
    options.nproc = {RankCount::Kind::number, 4};
    CHECK_THROWS_WITH(look_up(options, machine, {{"CUDA_VISIBLE_DEVICES", "0,1"}}),
                      Catch::Matchers::Contains("--nproc 4 needs 4 GPUs, found 2"));
    CHECK(look_up(options, machine, {{"CUDA_VISIBLE_DEVICES", ""}}).nproc == 4);
  }
  SECTION("--nproc cpu counts the cores of the machine") {
    options.nproc = {RankCount::Kind::cpu, 0};
    CHECK(look_up(options, machine).nproc == 96);
  }
}

TEST_CASE("variables that the user has set are noticed", "[look_up]") {
  FakeMachine machine(desktop());
  const auto bare = look_up({}, machine).facts;
  CHECK_FALSE(bare.omp_num_threads_set);
  CHECK_FALSE(bare.nccl_async_error_handling_set);
  CHECK_FALSE(bare.allocator_set);
  CHECK_FALSE(bare.nccl_record_set);
  CHECK_FALSE(bare.cuda_visible_devices.has_value());
  const auto set = look_up({}, machine,
                           {{"OMP_NUM_THREADS", "4"},
                            {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                            {"TORCH_FR_DUMP_TEMP_FILE", "/tmp/mine"},
                            {"CUDA_VISIBLE_DEVICES", ""}})
                       .facts;
  CHECK(set.omp_num_threads_set);
  CHECK(set.nccl_async_error_handling_set);
  CHECK(set.nccl_record_set);
  CHECK(set.cuda_visible_devices == "");
  CHECK(look_up({}, machine, {{"PYTORCH_ALLOC_CONF", ""}}).facts.allocator_set);
  CHECK(look_up({}, machine, {{"PYTORCH_CUDA_ALLOC_CONF", ""}}).facts.allocator_set);
}

TEST_CASE("cores are read only if ranks are to be bound to them", "[look_up]") {
  FakeMachine machine({.sockets = 2, .cores_per_node = 32, .gpu_nodes = {}});
  Options options;
  CHECK(look_up(options, machine).facts.bindings.empty());
  options.numa_binding = NumaBinding::node;
  const auto bound = look_up(options, machine).facts.bindings;
  REQUIRE(bound.size() == 1);
  CHECK_FALSE(bound[0].cpus.empty());
}
