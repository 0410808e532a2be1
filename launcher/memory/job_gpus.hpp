#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/devices/nvml.hpp"

namespace mgpu::launcher {

// One GPU at one time.
struct GpuReading {
  int gpu = 0;  // as nvidia-smi counts
  Nvml::Memory memory;
  Nvml::Activity activity;
};

// A process that uses memory of a GPU.
struct GpuHolder {
  int pid = 0;
  std::uint64_t bytes = 0;  // 0: unknown
  std::string program;      // empty: there is no such process here, so it has ended or is elsewhere
  bool visible = true;      // else `pid` is that of another pid namespace, and `program` is empty
};

// The GPUs of the job, through NVML, which the first call loads. NVML's calls may block for long,
// so this is for a thread of its own.
class JobGpus {
 public:
  // `names` as in CUDA_VISIBLE_DEVICES; MIG instances are left out. `kernel_pids`: see
  // sees_kernel_pids(); if not, a pid counts only if its process has opened a GPU.
  JobGpus(std::vector<std::string> names, bool kernel_pids);
  JobGpus(const JobGpus&) = delete;
  JobGpus& operator=(const JobGpus&) = delete;
  ~JobGpus();

  // Both are empty if NVML is not available.
  std::vector<GpuReading> read();
  std::vector<GpuHolder> holders(int gpu);

 private:
  void load();

  std::vector<std::string> names_;
  std::unique_ptr<Nvml> nvml_;
  std::vector<int> gpus_;
  bool kernel_pids_;
  bool loaded_ = false;
};

// Why the clocks of a GPU are reduced, from NVML's bits, such as "heat"; empty: for no reason that
// needs attention.
std::string slowdown_text(std::uint64_t reasons);

// The memory of a GPU that no running process explains: it belongs to processes that have ended.
std::uint64_t undrained(const GpuReading& reading, const std::vector<GpuHolder>& holders);

// "pid 4711 (python3 serve.py) uses 11.9 GiB, pid 4712 (...) uses 3.0 GiB".
std::string holders_text(const std::vector<GpuHolder>& holders);

}  // namespace mgpu::launcher
