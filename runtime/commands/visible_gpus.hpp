#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mgpu::recipes {

// The GPUs that a process started here would use.
struct VisibleGpus {
  int count = 0;
  std::int64_t memory = 0;  // bytes of the first one; 0: there is none, or it is unknown
};

// Asks NVIDIA's management library, which is part of the driver: CUDA is not loaded. Without a
// driver there are no GPUs.
VisibleGpus look_up_gpus();

// The entries of CUDA_VISIBLE_DEVICES that name a GPU, by CUDA's rules: without a value all GPUs
// are visible, the list ends at the first entry that names none, and a GPU that is named twice
// hides all. An entry is a number or the beginning of a UUID. Returns UUIDs.
std::vector<std::string> visible_entries(const std::optional<std::string>& cuda_visible_devices,
                                         const std::vector<std::string>& uuids);

}  // namespace mgpu::recipes
