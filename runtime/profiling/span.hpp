#pragma once

#include <cstdint>
#include <string>

namespace mgpu::profiling {

// What a thread or a stream of a GPU did from one time to another, in nanoseconds since 1970.
struct Span {
  std::string name;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t thread = 0;  // as the kernel numbers threads; on a GPU unused
  int gpu = -1;             // -1: a range of a thread
  std::int64_t stream = 0;  // of the GPU
  std::int64_t step = 0;    // in which a range began; 0: unknown

  friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace mgpu::profiling
