#pragma once

#include <array>
#include <vector>

#include "launcher/devices/topology.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// The cores and memory that each local rank is bound to; empty with NumaBinding::none.
//
//   node          all cores of the GPU's NUMA node
//   socket        all cores of all nodes on that socket
//   exclusive     the node's physical cores, divided among its GPUs; earlier ones get the remainder
//   core_complex  the cores that share one last-level cache; the GPUs of a node take turns
//
// `gpu_nodes` has the NUMA node of each visible GPU, -1: unknown; local rank r uses GPU r modulo
// their number. GPUs without a rank keep their share, so that a second job fits on the machine.
// Ranks without a GPU, and GPUs without a node, are spread evenly over the nodes. Throws UsageError
// when a rank would get no core.
std::vector<Binding> bindings(NumaBinding mode, int ranks, const std::vector<int>& gpu_nodes,
                              const Topology& topology);

// A Binding as bit masks for system calls, built before a fork and applied after it.
class BindingMask {
 public:
  BindingMask() = default;  // binds to nothing
  explicit BindingMask(const Binding& binding);

  // Binds the calling thread, and the program it executes, to the cores and the memory.
  // Async-signal-safe. Returns 0, or errno if the cores were refused. A refused memory policy is
  // not a failure: containers often forbid it, and first touch allocates near memory anyway.
  int apply() const noexcept;

 private:
  static constexpr int kWordBits = 8 * sizeof(unsigned long);
  static constexpr int kMostCpus = 8192;
  static constexpr int kMostNodes = 1024;

  std::array<unsigned long, kMostCpus / kWordBits> cpus_{};
  std::array<unsigned long, kMostNodes / kWordBits> nodes_{};
  bool has_cpus_ = false;
  bool has_nodes_ = false;
};

}  // namespace mgpu::launcher
