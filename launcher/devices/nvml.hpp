#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mgpu::launcher {

// NVIDIA's management library, loaded at run time and never linked, so that mgpu-run starts without
// it. Opening costs tens of milliseconds on a GPU machine. Unknown values are empty or 0. The
// destructor unloads the library.
class Nvml {
 public:
  struct Memory {
    std::uint64_t total = 0;  // bytes
    std::uint64_t used = 0;   // by programs, without memory reserved by the driver
  };

  // Problems of a GPU; an unknown value counts as no problem.
  struct Health {
    std::uint64_t uncorrected_errors = 0;  // of its memory, since the driver was loaded
    bool remapping_pending = false;        // bad rows are remapped at the next reset
    bool remapping_failed = false;
    bool compute_prohibited = false;
    bool mig = false;
    std::uint64_t slowdown = 0;  // why its clocks are reduced, as NVML's bits
  };

  // What a GPU does now; -1: unknown.
  struct Activity {
    int utilization = -1;        // percent of the last moment in which it computed
    int temperature = -1;        // degrees Celsius
    std::uint64_t slowdown = 0;  // as in Health
  };

  // A process with memory on a GPU. In a container pids may be those of the host.
  struct Process {
    int pid = 0;
    std::uint64_t bytes = 0;  // 0: unknown
  };

  // Throws std::runtime_error with one line when the library or the driver is not available.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  int count() const;  // GPUs that this process may open, in the order of PCI addresses
  std::string driver() const;
  int cuda_version() const;  // the newest version that the driver supports: 13000 is 13.0
  std::string name(int gpu) const;
  std::string uuid(int gpu) const;
  std::string bus_id(int gpu) const;      // as in sysfs
  std::string capability(int gpu) const;  // "9.0"
  Memory memory(int gpu) const;
  Health health(int gpu) const;
  Activity activity(int gpu) const;
  std::vector<Process> processes(int gpu) const;  // may take milliseconds

  // How two GPUs are connected, in the notation of `nvidia-smi topo -m`: NV and the number of
  // links, else PIX (one switch), PXB (several), PHB (host bridge), NODE, SYS; "?" when unknown.
  std::string link(int a, int b) const;
  bool can_read_peer(int a, int b) const;  // P2P

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace mgpu::launcher
