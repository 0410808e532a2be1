#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/devices/system_tree.hpp"

namespace mgpu::launcher {

// One GPU of this machine, as far as the kernel's files tell.
struct Gpu {
  int index = 0;       // what CUDA_VISIBLE_DEVICES counts by, in the order of PCI addresses
  std::string name;    // empty when not told, and so for the next two
  std::string uuid;    // GPU-...
  std::string bus_id;  // as under /sys/bus/pci/devices
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// A GPU, or a part of one (MIG), that CUDA would show.
struct VisibleGpu {
  std::string name;  // what CUDA_VISIBLE_DEVICES calls it
  int index = -1;    // of the Gpu, -1 when that cannot be told
  friend bool operator==(const VisibleGpu&, const VisibleGpu&) = default;
};

// The GPUs that we may open. Reads /proc/driver/nvidia/gpus, else the names in /dev, in well under
// a millisecond; starting NVML or CUDA for it would cost tens. In CUDA's order when all GPUs are
// of one kind or CUDA_DEVICE_ORDER is PCI_BUS_ID.
std::vector<Gpu> find_gpus(const Roots& roots);

// What CUDA shows under this value of CUDA_VISIBLE_DEVICES, by CUDA's own rules: unset shows all;
// the first entry that is -1, unknown or not unique ends the list; one that comes twice empties it.
std::vector<VisibleGpu> visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                                     const std::vector<Gpu>& gpus);

// What --gpus names: indices, beginnings of UUIDs, MIG ids. Throws UsageError for what is not here.
std::vector<VisibleGpu> chosen_gpus(const std::vector<std::string>& wanted,
                                    const std::vector<Gpu>& gpus);

// The NUMA node and the cores near a PCI device; -1 and none where the machine does not tell.
struct Locality {
  int numa_node = -1;
  std::vector<int> cpus;
};
Locality locality_of(const std::string& bus_id, const Roots& roots);

// The NUMA node of each visible GPU, as bindings() wants them.
std::vector<int> nodes_of(const std::vector<VisibleGpu>& visible, const std::vector<Gpu>& gpus,
                          const Roots& roots);

// A PCI address as sysfs writes it, 0000:3b:00.0, from any form that a driver uses.
std::string sysfs_bus_id(std::string_view address);

}  // namespace mgpu::launcher
