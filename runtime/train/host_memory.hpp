#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mgpu::train {

// The bytes that this process could still use without being killed or swapping: what the machine
// has available, or less if a control group limits the process. 0: unknown. `root` is the root of
// the file system.
std::int64_t available_host_memory(const std::string& root = "");

// What a rank wants to use, and what it sees available.
struct HostNeed {
  std::int64_t node = 0;
  std::int64_t bytes = 0;
  std::int64_t available = 0;
};

// The share of the available memory that the ranks of a node may use together.
inline constexpr double kUsableHostMemory = 0.75;

// Which node has too little memory for its ranks, and how much they need; empty: none.
std::string lack_of_host_memory(const std::vector<HostNeed>& ranks);

}  // namespace mgpu::train
