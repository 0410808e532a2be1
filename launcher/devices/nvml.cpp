#include "launcher/devices/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "launcher/devices/devices.hpp"

namespace mgpu::launcher {
namespace {

// The few declarations of nvml.h that are needed, from its documented binary interface.
using Device = void*;
constexpr int kNvmlSuccess = 0;
constexpr unsigned kP2pRead = 0;
constexpr unsigned kP2pNvlink = 2;
constexpr unsigned kMostLinks = 36;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct MemoryInfo {
  unsigned long long total, free, used;
};

struct MemoryInfo2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct Utilization {
  unsigned gpu, memory;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

constexpr unsigned kMemoryInfo2 = sizeof(MemoryInfo2) | 2u << 24;

}  // namespace

struct Nvml::Library {
  // The NVLinks of one GPU.
  struct Links {
    int active = 0;
    std::map<std::string, int> to;  // by the other end's PCI address
  };

  void* handle = nullptr;
  std::vector<Device> devices;
  std::vector<Links> links;

  template <class... Args>
  int call(const char* name, Args... args) const {
    // A function that an older driver lacks is reported as "not supported".
    constexpr int kNotSupported = 3;
    const auto function = reinterpret_cast<int (*)(Args...)>(::dlsym(handle, name));
    return function ? function(args...) : kNotSupported;
  }

  std::string text(const char* name, Device device) const {
    char buffer[128] = "";
    return call(name, device, buffer, unsigned{sizeof buffer}) == kNvmlSuccess ? buffer : "";
  }

  std::string error(int code) const {
    const auto describe =
        reinterpret_cast<const char* (*)(int)>(::dlsym(handle, "nvmlErrorString"));
    return describe ? describe(code) : fmt::format("NVML error {}", code);
  }

  Links read_links(Device device) const {
    Links found;
    for (unsigned link = 0; link < kMostLinks; ++link) {
      unsigned on = 0;
      if (call("nvmlDeviceGetNvLinkState", device, link, &on) != kNvmlSuccess) break;
      if (!on) continue;
      ++found.active;
      PciInfo other{};
      if (call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link, &other) == kNvmlSuccess)
        ++found.to[sysfs_bus_id(other.bus_id)];
    }
    return found;
  }

  bool peers(int a, int b, unsigned kind) const {
    int status = -1;
    return call("nvmlDeviceGetP2PStatus", devices.at(a), devices.at(b), kind, &status) ==
               kNvmlSuccess &&
           status == 0;
  }
};

Nvml::Nvml() : library_(std::make_unique<Library>()) {
  library_->handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library_->handle) throw std::runtime_error("libnvidia-ml.so.1 not found on this machine");
  if (const int code = library_->call("nvmlInit_v2"); code != kNvmlSuccess) {
    const auto why = library_->error(code);
    ::dlclose(library_->handle);
    throw std::runtime_error("cannot initialize NVML: " + why);
  }
  unsigned count = 0;
  library_->call("nvmlDeviceGetCount_v2", &count);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (library_->call("nvmlDeviceGetHandleByIndex_v2", i, &device) != kNvmlSuccess) continue;
    library_->devices.push_back(device);
    library_->links.push_back(library_->read_links(device));
  }
}

Nvml::~Nvml() {
  library_->call("nvmlShutdown");
  ::dlclose(library_->handle);
}

int Nvml::count() const {
  return static_cast<int>(library_->devices.size());
}

std::string Nvml::driver() const {
  char buffer[128] = "";
  const int code = library_->call("nvmlSystemGetDriverVersion", buffer, unsigned{sizeof buffer});
  return code == kNvmlSuccess ? buffer : "";
}

int Nvml::cuda_version() const {
  int version = 0;
  const int code = library_->call("nvmlSystemGetCudaDriverVersion_v2", &version);
  return code == kNvmlSuccess ? version : 0;
}

std::string Nvml::name(int gpu) const {
  return library_->text("nvmlDeviceGetName", library_->devices.at(gpu));
}

std::string Nvml::uuid(int gpu) const {
  return library_->text("nvmlDeviceGetUUID", library_->devices.at(gpu));
}

std::string Nvml::bus_id(int gpu) const {
  PciInfo pci{};
  const int code = library_->call("nvmlDeviceGetPciInfo_v3", library_->devices.at(gpu), &pci);
  return code == kNvmlSuccess ? sysfs_bus_id(pci.bus_id) : "";
}

std::string Nvml::capability(int gpu) const {
  int major = 0, minor = 0;
  const int code = library_->call("nvmlDeviceGetCudaComputeCapability", library_->devices.at(gpu),
                                  &major, &minor);
  return code == kNvmlSuccess ? fmt::format("{}.{}", major, minor) : "";
}

Nvml::Memory Nvml::memory(int gpu) const {
  Device device = library_->devices.at(gpu);
  MemoryInfo2 now{kMemoryInfo2, 0, 0, 0, 0};
  if (library_->call("nvmlDeviceGetMemoryInfo_v2", device, &now) == kNvmlSuccess)
    return {now.total, now.used};
  MemoryInfo old{};
  if (library_->call("nvmlDeviceGetMemoryInfo", device, &old) == kNvmlSuccess)
    return {old.total, old.used};
  return {};
}

Nvml::Health Nvml::health(int gpu) const {
  constexpr unsigned kUncorrected = 1, kSinceLoaded = 0;
  constexpr unsigned kProhibited = 2, kOn = 1;
  Device device = library_->devices.at(gpu);
  Health health;
  unsigned long long number = 0;
  if (library_->call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kSinceLoaded, &number) ==
      kNvmlSuccess)
    health.uncorrected_errors = number;
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (library_->call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending,
                     &failed) == kNvmlSuccess) {
    health.remapping_pending = pending != 0;
    health.remapping_failed = failed != 0;
  }
  unsigned mode = 0, later = 0;
  if (library_->call("nvmlDeviceGetComputeMode", device, &mode) == kNvmlSuccess)
    health.compute_prohibited = mode == kProhibited;
  mode = 0;
  if (library_->call("nvmlDeviceGetMigMode", device, &mode, &later) == kNvmlSuccess)
    health.mig = mode == kOn;
  number = 0;
  if (library_->call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &number) == kNvmlSuccess)
    health.slowdown = number;
  return health;
}

Nvml::Activity Nvml::activity(int gpu) const {
  constexpr unsigned kOfGpu = 0;
  Device device = library_->devices.at(gpu);
  Activity activity;
  Utilization busy{};
  if (library_->call("nvmlDeviceGetUtilizationRates", device, &busy) == kNvmlSuccess)
    activity.utilization = static_cast<int>(busy.gpu);
  unsigned degrees = 0;
  if (library_->call("nvmlDeviceGetTemperature", device, kOfGpu, &degrees) == kNvmlSuccess)
    activity.temperature = static_cast<int>(degrees);
  unsigned long long reasons = 0;
  if (library_->call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons) == kNvmlSuccess)
    activity.slowdown = reasons;
  return activity;
}

std::vector<Nvml::Process> Nvml::processes(int gpu) const {
  constexpr unsigned kMost = 256;
  std::vector<ProcessInfo> found(kMost);
  unsigned count = kMost;
  if (library_->call("nvmlDeviceGetComputeRunningProcesses_v3", library_->devices.at(gpu), &count,
                     found.data()) != kNvmlSuccess)
    return {};
  std::vector<Process> processes;
  for (unsigned i = 0; i < std::min(count, kMost); ++i)
    processes.push_back(
        {static_cast<int>(found[i].pid), found[i].bytes >= 1ull << 62 ? 0 : found[i].bytes});
  return processes;
}

std::string Nvml::link(int a, int b) const {
  const auto& links = library_->links.at(a);
  if (const auto direct = links.to.find(bus_id(b)); direct != links.to.end())
    return fmt::format("NV{}", direct->second);
  // Through a switch, the other end of every link: as many links as the GPU with fewer links has.
  const int through = std::min(links.active, library_->links.at(b).active);
  if (through > 0 && library_->peers(a, b, kP2pNvlink)) return fmt::format("NV{}", through);
  unsigned level = 0;
  if (library_->call("nvmlDeviceGetTopologyCommonAncestor", library_->devices.at(a),
                     library_->devices.at(b), &level) != kNvmlSuccess)
    return "?";
  switch (level) {
    case 0:  // two GPUs of one board
    case 10:
      return "PIX";
    case 20:
      return "PXB";
    case 30:
      return "PHB";
    case 40:
      return "NODE";
    case 50:
      return "SYS";
  }
  return "?";
}

bool Nvml::can_read_peer(int a, int b) const {
  return library_->peers(a, b, kP2pRead);
}

}  // namespace mgpu::launcher
