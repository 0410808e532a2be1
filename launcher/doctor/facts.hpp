#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/devices/devices_command.hpp"
#include "launcher/devices/nvml.hpp"

namespace mgpu::launcher {

// A LibTorch installation, from its files.
struct TorchFacts {
  std::string folder;  // the one with libtorch_cpu.so; empty: not found
  std::string by;      // how it was found: mgpu-train, LIBTORCH_ROOT, or the python that has it
  std::string version;
  std::string cuda;               // what it was built for; empty: CPUs only
  bool has_cuda_library = false;  // libtorch_cuda.so
  std::string cudart;             // the CUDA run-time library's version; empty: not found
  std::string nccl;
};

// A program that was started as a test.
struct ProgramFacts {
  std::string path;        // empty: there is none
  bool timed_out = false;  // it was killed after the limit
  int status = 0;          // as a shell reports it
  std::string output;      // stdout and stderr
};

struct DiskFacts {
  std::string what;  // "current folder"
  std::string path;
  std::string error;                  // why it could not be read; empty: it could
  std::uint64_t total = 0, free = 0;  // bytes, available to this user
  double free_inodes = 1;             // as a fraction
  bool writable = true;
  bool timed_out = false;  // the file system did not answer
};

struct PortFacts {
  int port = 0;       // requested port; 0: any
  std::string error;  // from binding it or connecting to it on loopback
};

struct InterfaceFacts {
  std::string name;
  std::vector<std::string> addresses;
};

struct MemoryState {
  std::uint64_t total = 0, available = 0;  // bytes, of the machine
  std::uint64_t cgroup_limit = 0;          // 0: none
  std::uint64_t oom_kills = 0;             // in our cgroup, since it was created
};

// Limits that ranks inherit; std::nullopt: no limit.
struct LimitFacts {
  std::optional<std::uint64_t> open_files, open_files_hard;
  std::optional<std::uint64_t> locked_memory;
};

// All facts that `mgpu-run doctor` collects before it evaluates them.
struct DoctorFacts {
  DeviceReport devices;
  std::vector<Nvml::Health> health;  // of each GPU of `devices`; empty without NVML
  int driver_cuda = 0;               // 13000 is CUDA 13.0; 0: unknown
  bool device_files = false;         // the kernel's NVIDIA module is loaded
  bool nvml_timed_out = false;
  std::optional<std::string> cuda_visible_devices;
  TorchFacts torch;
  ProgramFacts trainer;
  std::string our_version;
  PortFacts any_port;
  std::optional<PortFacts> wanted_port;
  std::vector<InterfaceFacts> interfaces;  // those that are up, without loopback
  std::map<std::string, bool> fabric;      // InfiniBand devices; whether a port is active
  std::vector<DiskFacts> disks;
  DiskFacts shared_memory;
  MemoryState memory;
  LimitFacts limits;
  std::map<std::string, std::string> variables;  // variables that change how jobs run, if set
};

}  // namespace mgpu::launcher
