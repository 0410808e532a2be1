#pragma once

#include <vector>

#include "launcher/devices/system_tree.hpp"

namespace mgpu::launcher {

// One logical core and what it shares. A core and a cache are identified by their lowest logical
// core, whether or not this process may run on it.
struct Cpu {
  int id = 0;
  int node = 0;  // NUMA node
  int socket = 0;
  int core = 0;   // the same for hyper-thread siblings
  int cache = 0;  // the same for cores that share the last-level cache
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

// The cores and memory that this process may use.
struct Topology {
  std::vector<Cpu> cpus;          // by id
  std::vector<int> memory_nodes;  // ascending

  std::vector<int> nodes() const;  // NUMA nodes that have one of these cores, ascending
};

// Reads the online cores in `allowed_cpus`, and the nodes in `allowed_memory` that have memory.
// Where the kernel gives no information it assumes one node, one socket, no hyper-threads and one
// cache per node.
Topology read_topology(const Roots& roots, const std::vector<int>& allowed_cpus,
                       const std::vector<int>& allowed_memory);

// As read_topology, with what this process is allowed.
Topology own_topology(const Roots& roots);

}  // namespace mgpu::launcher
