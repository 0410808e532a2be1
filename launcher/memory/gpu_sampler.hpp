#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/memory/job_gpus.hpp"
#include "launcher/memory/trend.hpp"

namespace mgpu::launcher {

// The GPUs of a job at one time.
struct GpuSample {
  std::vector<GpuReading> gpus;
  std::vector<std::string> warnings;  // lines for the user
};

// Takes samples of the job's GPUs, keeps their history, and finds what to warn of. NVML may block
// for long, or for ever if the driver is stuck, so this is for a thread of its own.
class GpuSampler {
 public:
  GpuSampler(std::vector<std::string> gpus, bool kernel_pids)
      : gpus_(std::move(gpus), kernel_pids) {}

  // `time` is of any clock that does not jump. The history begins anew with each attempt.
  GpuSample take(int attempt, std::chrono::duration<double> time);
  JobGpus& gpus() { return gpus_; }

 private:
  struct History {
    MemoryTrend trend{MemoryTrend::Rule::growth};
    int slow_samples = 0;
    bool slowdown_reported = false;
  };

  JobGpus gpus_;
  int attempt_ = -1;
  std::map<int, History> histories_;
};

}  // namespace mgpu::launcher
