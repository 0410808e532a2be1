#pragma once

#include <vector>

#include "launcher/devices/system_tree.hpp"

namespace mgpu::launcher {

// One logical core and what it shares. A core and a cache are named by the lowest logical core
// that belongs to them, whether or not we may run there.
struct Cpu {
  int id = 0;
  int node = 0;  // NUMA node
  int socket = 0;
  int core = 0;   // hyper-thread siblings have the same
  int cache = 0;  // those that share the last level of cache have the same
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

// The cores and memory that we may use.
struct Topology {
  std::vector<Cpu> cpus;          // by id
  std::vector<int> memory_nodes;  // ascending

  std::vector<int> nodes() const;  // those with a core of ours, ascending
};

// Reads the online cores that are in `allowed_cpus`, and of the nodes that have memory those in
// `allowed_memory`. What the kernel does not tell counts as one node, one socket, no hyper-threads
// and one cache for a node.
Topology read_topology(const Roots& roots, const std::vector<int>& allowed_cpus,
                       const std::vector<int>& allowed_memory);

// As read_topology, with what this process is allowed.
Topology own_topology(const Roots& roots);

}  // namespace mgpu::launcher
