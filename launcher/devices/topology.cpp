#include "launcher/devices/topology.hpp"

#include <sched.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

std::vector<int> read_ids(const std::string& path) {
  return parse_id_list(read_trimmed(path).value_or(""));
}

// The cores that share the last-level cache of a core; empty when unknown.
std::vector<int> cache_sharers(const std::string& cpu_folder) {
  int highest = 0;
  std::string best;
  for (int index = 0;; ++index) {
    const auto folder = fmt::format("{}/cache/index{}", cpu_folder, index);
    const int level = read_number(folder + "/level", -1);
    if (level < 0) break;
    if (level <= highest || read_trimmed(folder + "/type") == "Instruction") continue;
    highest = level;
    best = folder;
  }
  return best.empty() ? std::vector<int>() : read_ids(best + "/shared_cpu_list");
}

std::map<int, int> nodes_of_cpus(const std::string& nodes_folder) {
  std::map<int, int> nodes;
  for (const int node : read_ids(nodes_folder + "/online"))
    for (const int cpu : read_ids(fmt::format("{}/node{}/cpulist", nodes_folder, node)))
      nodes[cpu] = node;
  return nodes;
}

std::vector<int> own_cpus() {
  // Kernels reject a mask that is smaller than their own.
  constexpr int kMostCpus = 16384;
  cpu_set_t* mask = CPU_ALLOC(kMostCpus);
  if (!mask) return {};
  const size_t size = CPU_ALLOC_SIZE(kMostCpus);
  CPU_ZERO_S(size, mask);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, size, mask) == 0)
    for (int cpu = 0; cpu < kMostCpus; ++cpu)
      if (CPU_ISSET_S(cpu, size, mask)) cpus.push_back(cpu);
  CPU_FREE(mask);
  return cpus;
}

std::vector<int> own_memory_nodes(const Roots& roots) {
  constexpr std::string_view kKey = "Mems_allowed_list:";
  const auto status = read_trimmed(roots.proc + "/self/status").value_or("");
  const size_t at = status.find(kKey);
  if (at == std::string::npos) return {};
  const auto line = status.substr(at + kKey.size(), status.find('\n', at) - at - kKey.size());
  return parse_id_list(line);
}

}  // namespace

std::vector<int> Topology::nodes() const {
  std::vector<int> nodes;
  for (const auto& cpu : cpus) nodes.push_back(cpu.node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

Topology read_topology(const Roots& roots, const std::vector<int>& allowed_cpus,
                       const std::vector<int>& allowed_memory) {
  const auto cpu_root = roots.sys + "/devices/system/cpu";
  const auto node_root = roots.sys + "/devices/system/node";
  const auto node_of = nodes_of_cpus(node_root);
  std::map<int, int> core_of, cache_of;  // read once for all cores that share it

  Topology topology;
  for (const int id : in_both(read_ids(cpu_root + "/online"), allowed_cpus)) {
    const auto folder = fmt::format("{}/cpu{}", cpu_root, id);
    Cpu cpu{.id = id, .core = id};
    if (const auto found = node_of.find(id); found != node_of.end()) cpu.node = found->second;
    cpu.socket = std::max(0, read_number(folder + "/topology/physical_package_id", 0));
    if (!core_of.count(id)) {
      const auto siblings = read_ids(folder + "/topology/thread_siblings_list");
      for (const int sibling : siblings) core_of[sibling] = siblings.front();
    }
    if (!cache_of.count(id)) {
      const auto sharers = cache_sharers(folder);
      for (const int sharer : sharers) cache_of[sharer] = sharers.front();
    }
    if (const auto found = core_of.find(id); found != core_of.end()) cpu.core = found->second;
    const auto cache = cache_of.find(id);
    cpu.cache = cache != cache_of.end() ? cache->second : -1;
    topology.cpus.push_back(cpu);
  }
  topology.memory_nodes = in_both(read_ids(node_root + "/has_memory"), allowed_memory);
  return topology;
}

Topology own_topology(const Roots& roots) {
  return read_topology(roots, own_cpus(), own_memory_nodes(roots));
}

}  // namespace mgpu::launcher
