// A libnvidia-ml.so.1 with fake GPUs: tests of NVML on machines without a GPU.
//
//   FAKE_NVML_GPUS   the number of GPUs; unset: there is no driver
//   FAKE_NVML_LINKS  "switch": 18 links from each GPU to a switch
//                    "pairs": 4 links between GPU 0 and 1, 2 and 3, ...; others have no P2P
//                    else: no links
//   FAKE_NVML_STATE  a file with a line for each GPU whose state is not the usual one: its number,
//                    the MiB in use, and "PID:MIB" for each process
//   FAKE_NVML_FAULTS the problems of GPU 1, any of: ecc pending broken prohibited mig hot
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNoDriver = 9;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int count() {
  const char* number = std::getenv("FAKE_NVML_GPUS");
  return number ? std::atoi(number) : -1;
}

std::string_view links() {
  const char* text = std::getenv("FAKE_NVML_LINKS");
  return text ? text : "";
}

// A device is its index plus one, as a pointer.
int index_of(void* device) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(device)) - 1;
}

bool has_fault(void* device, std::string_view fault) {
  const char* text = std::getenv("FAKE_NVML_FAULTS");
  return index_of(device) == 1 && text &&
         std::string_view(text).find(fault) != std::string_view::npos;
}

// What FAKE_NVML_STATE has about a device.
struct State {
  bool found = false;
  unsigned long long used = 0;
  std::vector<std::pair<unsigned, unsigned long long>> processes;
};

State state_of(void* device) {
  State state;
  const char* path = std::getenv("FAKE_NVML_STATE");
  std::ifstream file(path ? path : "");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    int gpu = -1;
    unsigned long long mib = 0;
    if (!(words >> gpu >> mib) || gpu != index_of(device)) continue;
    state.found = true;
    state.used = mib << 20;
    unsigned pid = 0;
    for (char colon = 0; words >> pid >> colon >> mib;)
      state.processes.emplace_back(pid, mib << 20);
  }
  return state;
}

struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

bool are_pair(int a, int b) {
  return links() == "pairs" && a / 2 == b / 2;
}

void write_bus(PciInfo* pci, int bus) {
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02d:00.0", bus);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return count() < 0 ? kNoDriver : kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
const char* nvmlErrorString(int code) {
  return code == kNoDriver ? "Driver Not Loaded" : "other";
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "570.1.2");
  return kSuccess;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kSuccess;
}

int nvmlDeviceGetTotalEccErrors(void* device, unsigned kind, unsigned counter,
                                unsigned long long* number) {
  const bool asked_well = kind == 1 && counter == 0;
  *number = asked_well && has_fault(device, "ecc") ? 3 : 0;
  return asked_well ? kSuccess : kInvalid;
}

int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = 0;
  *pending = has_fault(device, "pending");
  *failed = has_fault(device, "broken");
  return kSuccess;
}

int nvmlDeviceGetComputeMode(void* device, unsigned* mode) {
  *mode = has_fault(device, "prohibited") ? 2 : 0;
  return kSuccess;
}

int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* later) {
  *now = *later = has_fault(device, "mig");
  return kSuccess;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = has_fault(device, "hot") ? 0x40 : 0x1;
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* number) {
  *number = count();
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (static_cast<int>(index) >= count()) return kInvalid;
  *device = reinterpret_cast<void*>(static_cast<std::intptr_t>(index) + 1);
  return kSuccess;
}

int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "NVIDIA Made-up 80GB");
  return kSuccess;
}

int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%d0000000-aaaa-bbbb-cccc-000000000000", index_of(device));
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (int i = 0; i < count(); ++i) {
    char text[64] = "";
    void* const candidate = reinterpret_cast<void*>(static_cast<std::intptr_t>(i) + 1);
    nvmlDeviceGetUUID(candidate, text, sizeof text);
    if (std::string_view(text) != uuid) continue;
    *device = candidate;
    return kSuccess;
  }
  return kInvalid;
}

int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* pci) {
  write_bus(pci, 10 + index_of(device));
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo_v2(void* device, Memory2* memory) {
  if (memory->version != (sizeof(Memory2) | 2u << 24)) return kInvalid;
  memory->total = 80ull << 30;
  memory->reserved = 0;
  const auto state = state_of(device);
  memory->used = state.found ? state.used : static_cast<unsigned long long>(index_of(device)) << 30;
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(void*, unsigned* percent) {
  percent[0] = 98;
  percent[1] = 40;
  return kSuccess;
}

int nvmlDeviceGetTemperature(void*, unsigned sensor, unsigned* degrees) {
  *degrees = 61;
  return sensor == 0 ? kSuccess : kInvalid;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* found) {
  constexpr int kTooSmall = 7;
  const auto state = state_of(device);
  const unsigned room = *count;
  *count = static_cast<unsigned>(state.processes.size());
  if (*count > room) return kTooSmall;
  for (unsigned i = 0; i < *count; ++i)
    found[i] = {state.processes[i].first, state.processes[i].second, 0, 0};
  return kSuccess;
}

int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}

int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* on) {
  const unsigned number = links() == "switch" ? 18 : links() == "pairs" ? 4 : 0;
  if (number == 0) return kNotSupported;
  if (link >= 18) return kInvalid;
  *on = link < number;
  return kSuccess;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* pci) {
  write_bus(pci, links() == "switch" ? 99 : 10 + (index_of(device) ^ 1));
  return kSuccess;
}

int nvmlDeviceGetP2PStatus(void* a, void* b, unsigned kind, int* status) {
  constexpr unsigned kNvlink = 2;
  const bool joined = links() == "switch" || are_pair(index_of(a), index_of(b));
  const bool plain = links().empty() && kind != kNvlink;
  *status = joined || plain ? 0 : 5;
  return kSuccess;
}

int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, unsigned* level) {
  const int distance = std::abs(index_of(a) - index_of(b));
  *level = distance == 1 ? 10 : distance == 2 ? 20 : distance == 3 ? 30 : distance == 4 ? 40 : 50;
  return kSuccess;
}

}  // extern "C"
