#pragma once

#include <cstdint>

// Profiling marks parts of the work, so that a profiler or a trace can show them. Only GpuActivity
// needs LibTorch.
namespace mgpu::profiling {

// A named part of this thread's work, from its construction to its destruction: an NVTX range,
// which Nsight Systems shows on the time line together with the kernels that were started in it,
// and a span of the range log (range_log.hpp) while that is on. Ranges nest. Otherwise it takes a
// few nanoseconds; a build without NVTX's headers leaves NVTX out. `name` must outlive the range.
class Range {
 public:
  explicit Range(const char* name) noexcept;
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range();

 private:
  const char* name_;
  std::int64_t begin_ns_;  // 0: the log was off
};

}  // namespace mgpu::profiling
