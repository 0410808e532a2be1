#pragma once

#include <array>
#include <vector>

#include "launcher/devices/topology.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// The cores and memory each local rank is held to; none with NumaBinding::none.
//
//   node          all cores of the GPU's NUMA node
//   socket        all cores of all nodes on that socket
//   exclusive     the node's physical cores, divided among its GPUs; earlier ones get the remainder
//   core_complex  the cores that share one last-level cache; the GPUs of a node take turns
//
// `gpu_nodes` has the NUMA node of each visible GPU, -1 where the machine does not tell; local rank
// r uses GPU r modulo their number. GPUs without a rank keep their share, so that a second job fits
// beside ours. Ranks without a GPU, and GPUs without a node, are spread over the nodes evenly.
// Throws UsageError when a rank would be left without a core.
std::vector<Binding> bindings(NumaBinding mode, int ranks, const std::vector<int>& gpu_nodes,
                              const Topology& topology);

// A Binding in the form that system calls take, made before a fork and applied after it.
class BindingMask {
 public:
  BindingMask() = default;  // holds to nothing
  explicit BindingMask(const Binding& binding);

  // Holds the calling thread, and what it execs, to the cores and the memory. Async-signal-safe.
  // Returns 0, or the errno with which the cores were refused. Memory that is refused is no
  // failure: containers often forbid it, and first touch finds near memory anyhow.
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
