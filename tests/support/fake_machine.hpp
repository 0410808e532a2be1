#pragma once

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "launcher/devices/system_tree.hpp"
#include "tests/support/temp_dir.hpp"

namespace mgpu::tests {

// The /proc, /sys and /dev of a fake machine. Cores are numbered as by Linux on most servers: the
// first threads of all cores, node by node, then the second threads in the same order.
class FakeMachine {
 public:
  struct Shape {
    int sockets = 1;
    int nodes_per_socket = 1;
    int cores_per_node = 4;
    int threads = 2;
    int cores_per_cache = 4;
    std::vector<int> gpu_nodes{};  // the NUMA node of each GPU; -1 as the kernel writes it
  };

  explicit FakeMachine(const Shape& shape) : shape_(shape) {
    write("sys/devices/system/cpu/online", range(0, logical()));
    write("sys/devices/system/node/online", range(0, nodes()));
    write("sys/devices/system/node/has_memory", range(0, nodes()));
    for (int node = 0; node < nodes(); ++node)
      write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
            threads_of(node * shape.cores_per_node, shape.cores_per_node));
    for (int cpu = 0; cpu < logical(); ++cpu) add_cpu(cpu);
    for (size_t gpu = 0; gpu < shape.gpu_nodes.size(); ++gpu) add_gpu(static_cast<int>(gpu));
  }

  int nodes() const { return shape_.sockets * shape_.nodes_per_socket; }
  int cores() const { return nodes() * shape_.cores_per_node; }
  int logical() const { return cores() * shape_.threads; }

  std::vector<int> all_cpus() const { return ids(logical()); }
  std::vector<int> all_nodes() const { return ids(nodes()); }

  launcher::Roots roots() const { return {dir_.path("proc"), dir_.path("sys"), dir_.path("dev")}; }

  // A PCI address in the format of the kernel and of NVML, except for NVML's longer domain.
  static std::string bus_of(int gpu) { return "0000:" + std::to_string(10 + gpu) + ":00.0"; }
  static std::string uuid_of(int gpu) {
    return "GPU-" + std::to_string(gpu) + "0000000-aaaa-bbbb-cccc-000000000000";
  }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = dir_.path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(dir_.path(name)); }

 private:
  static std::vector<int> ids(int n) {
    std::vector<int> all(n);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  static std::string range(int first, int count) {
    return std::to_string(first) + "-" + std::to_string(first + count - 1);
  }
  std::string threads_of(int first_core, int count) const {
    std::string list;
    for (int thread = 0; thread < shape_.threads; ++thread)
      list.append(thread ? "," : "").append(range(first_core + thread * cores(), count));
    return list;
  }

  void add_cpu(int cpu) const {
    const int core = cpu % cores();
    const int node = core / shape_.cores_per_node;
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
    write(folder + "/topology/physical_package_id", std::to_string(node / shape_.nodes_per_socket));
    write(folder + "/topology/thread_siblings_list", threads_of(core, 1));
    write(folder + "/cache/index0/level", "1");
    write(folder + "/cache/index0/type", "Data");
    write(folder + "/cache/index0/shared_cpu_list", threads_of(core, 1));
    if (shape_.cores_per_cache == 0) return;
    write(folder + "/cache/index1/level", "3");
    write(folder + "/cache/index1/type", "Unified");
    const int first = core - core % shape_.cores_per_cache;
    write(folder + "/cache/index1/shared_cpu_list", threads_of(first, shape_.cores_per_cache));
  }

  void add_gpu(int gpu) const {
    const int node = shape_.gpu_nodes[gpu];
    write("dev/nvidia" + std::to_string(gpu), "");
    write("proc/driver/nvidia/gpus/" + bus_of(gpu) + "/information",
          "Model: \t\t NVIDIA Made-up 80GB\nIRQ:   \t\t 42\nGPU UUID: \t " + uuid_of(gpu) +
              "\nBus Location: \t " + bus_of(gpu) + "\nDevice Minor: \t " + std::to_string(gpu));
    write("sys/bus/pci/devices/" + bus_of(gpu) + "/numa_node", std::to_string(node));
    write("sys/bus/pci/devices/" + bus_of(gpu) + "/local_cpulist",
          node < 0 ? range(0, logical())
                   : threads_of(node * shape_.cores_per_node, shape_.cores_per_node));
  }

  Shape shape_;
  TempDir dir_{TempDir::in_memory()};
};

// One socket, 8 cores with hyper-threads, one GPU whose NUMA node the firmware does not report.
inline FakeMachine::Shape desktop() {
  return {.cores_per_node = 8, .cores_per_cache = 8, .gpu_nodes = {-1}};
}

// Two sockets of two nodes each (sub-NUMA clusters), two GPUs per node.
inline FakeMachine::Shape four_nodes() {
  return {.sockets = 2,
          .nodes_per_socket = 2,
          .cores_per_node = 12,
          .cores_per_cache = 24,
          .gpu_nodes = {0, 0, 1, 1, 2, 2, 3, 3}};
}

// Two EPYC sockets of one node each, eight caches of four cores in each, four GPUs a node.
inline FakeMachine::Shape epyc() {
  return {.sockets = 2,
          .cores_per_node = 32,
          .cores_per_cache = 4,
          .gpu_nodes = {0, 0, 0, 0, 1, 1, 1, 1}};
}

}  // namespace mgpu::tests
