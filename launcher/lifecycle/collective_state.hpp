#pragma once

#include <cstdint>
#include <string>

namespace mgpu::launcher {

// What a rank itself reports about its collectives: the first one that has not finished, else the
// last one.
struct CollectiveState {
  std::string name;            // "all-reduce of gradients"
  std::int64_t sequence = 0;   // its number, from 1; the same on all ranks
  std::int64_t elements = -1;  // of its tensor; -1: unknown
  bool waiting = false;        // it has not finished

  friend bool operator==(const CollectiveState&, const CollectiveState&) = default;
};

}  // namespace mgpu::launcher
