#pragma once

// Profiling marks parts of the work, so that a profiler can show them. Needs no LibTorch.
namespace mgpu::profiling {

// A named part of this thread's work, from its construction to its destruction: an NVTX range,
// which Nsight Systems shows on the time line together with the kernels that were started in it.
// Ranges nest. Without a profiler it takes a few nanoseconds; a build without NVTX's headers
// leaves it out.
class Range {
 public:
  explicit Range(const char* name) noexcept;
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range();
};

}  // namespace mgpu::profiling
