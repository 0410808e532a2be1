#pragma once

#include <cstdint>
#include <functional>

#include "launcher/memory/process_memory.hpp"

namespace mgpu::launcher {

// The memory of a rank and its children. The sum of their sizes counts memory that they share, such
// as that of forked data loaders, several times, and the exact number is slow to read. So it is
// read only when the sum is high, and again when it may have come half the way to the limit.
class HeldMemory {
 public:
  // Returns the bytes in use. `exact` reads exact_bytes(); if that is unknown, the rank's own size
  // counts. The result exceeds the limit only if one of these two does.
  std::uint64_t update(const RankMemory& memory, std::uint64_t limit,
                       const std::function<std::uint64_t()>& exact);

 private:
  std::uint64_t exact_ = 0;  // as read last; 0: not read
  std::uint64_t sum_ = 0;    // the smallest since then
};

}  // namespace mgpu::launcher
