#pragma once

#include <vector>

#include "runtime/profiling/span.hpp"

namespace mgpu::profiling {

// Records what the GPUs of this process do, through LibTorch's profiler (Kineto, which asks CUDA's
// CUPTI): kernels, copies and fills, also those of CUDA graphs. Lives and ends on one thread.
// Throws if the profiler cannot be used.
class GpuActivity {
 public:
  GpuActivity();
  GpuActivity(const GpuActivity&) = delete;
  GpuActivity& operator=(const GpuActivity&) = delete;
  ~GpuActivity();

  // Ends the recording. Requires: the GPUs have no work left. Empty if there is no GPU, or if
  // another profiler uses CUPTI.
  std::vector<Span> stop();

 private:
  bool running_ = false;
};

}  // namespace mgpu::profiling
