#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/devices/system_tree.hpp"

namespace mgpu::launcher {

// One GPU of this machine, from the kernel's files.
struct Gpu {
  int index = 0;       // its number in CUDA_VISIBLE_DEVICES; GPUs are ordered by PCI address
  std::string name;    // empty when unknown, like the next two
  std::string uuid;    // GPU-...
  std::string bus_id;  // as under /sys/bus/pci/devices
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// A GPU, or a MIG instance of one, that is visible to CUDA.
struct VisibleGpu {
  std::string name;  // its name in CUDA_VISIBLE_DEVICES
  int index = -1;    // of the Gpu, -1: unknown
  friend bool operator==(const VisibleGpu&, const VisibleGpu&) = default;
};

// The GPUs that this process may open. Reads /proc/driver/nvidia/gpus, else the names in /dev, in
// well under a millisecond; starting NVML or CUDA would cost tens. In CUDA's order when all GPUs
// are of one model or CUDA_DEVICE_ORDER is PCI_BUS_ID.
std::vector<Gpu> find_gpus(const Roots& roots);

// What CUDA shows under this value of CUDA_VISIBLE_DEVICES, by CUDA's own rules: unset shows all;
// the first entry that is -1, unknown or ambiguous ends the list; a duplicate entry empties it.
std::vector<VisibleGpu> visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                                     const std::vector<Gpu>& gpus);

// The GPUs that --gpus selects: indices, UUID prefixes, MIG ids. Throws UsageError for unknown
// ones.
std::vector<VisibleGpu> chosen_gpus(const std::vector<std::string>& wanted,
                                    const std::vector<Gpu>& gpus);

// The NUMA node and the cores near a PCI device; -1 and empty when unknown.
struct Locality {
  int numa_node = -1;
  std::vector<int> cpus;
};
Locality locality_of(const std::string& bus_id, const Roots& roots);

// The NUMA node of each visible GPU, the input of bindings().
std::vector<int> nodes_of(const std::vector<VisibleGpu>& visible, const std::vector<Gpu>& gpus,
                          const Roots& roots);

// A PCI address as sysfs writes it, 0000:3b:00.0, from any format that a driver uses.
std::string sysfs_bus_id(std::string_view address);

}  // namespace mgpu::launcher
