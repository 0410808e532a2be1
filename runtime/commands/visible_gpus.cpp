#include "runtime/commands/visible_gpus.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "rendezvous/contract.hpp"

namespace mgpu::recipes {
namespace {

// The declarations of nvml.h that are needed, from its documented binary interface.
using Device = void*;

struct NvmlMemory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    ready_ = library_ != nullptr && call("nvmlInit_v2") == 0;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (ready_) call("nvmlShutdown");
    if (library_ != nullptr) ::dlclose(library_);
  }

  std::vector<std::string> uuids() const {
    std::vector<std::string> found;
    unsigned count = 0;
    if (!ready_ || call("nvmlDeviceGetCount_v2", &count) != 0) return found;
    for (unsigned i = 0; i < count; ++i) {
      char text[128] = "";
      if (Device device = nullptr; call("nvmlDeviceGetHandleByIndex_v2", i, &device) == 0)
        call("nvmlDeviceGetUUID", device, text, unsigned{sizeof text});
      found.emplace_back(text);
    }
    return found;
  }

  // Without what the driver keeps for itself, as CUDA counts it. 0: unknown.
  std::int64_t memory_of(const std::string& uuid) const {
    Device device = nullptr;
    NvmlMemory memory{.version = sizeof(NvmlMemory) | 2U << 24};
    if (call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device) != 0) return 0;
    if (call("nvmlDeviceGetMemoryInfo_v2", device, &memory) != 0) return 0;
    return static_cast<std::int64_t>(memory.total - memory.reserved);
  }

 private:
  // The status that NVML's function returns; a function that the driver lacks fails.
  template <class... Args>
  int call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(::dlsym(library_, name));
    return function != nullptr ? function(args...) : -1;
  }

  void* library_ = nullptr;
  bool ready_ = false;
};

std::string_view trimmed_entry(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// The UUID that an entry stands for; "" where the list ends.
std::string uuid_of(std::string_view entry, const std::vector<std::string>& uuids) {
  if (entry.starts_with("MIG-")) return std::string(entry);
  if (entry.starts_with("GPU-")) {
    const auto has_beginning = [&](const std::string& uuid) { return uuid.starts_with(entry); };
    const auto found = std::ranges::find_if(uuids, has_beginning);
    const bool unique = std::ranges::count_if(uuids, has_beginning) == 1;
    return unique ? *found : std::string();
  }
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  return error == std::errc() && number < uuids.size() ? uuids[number] : std::string();
}

}  // namespace

std::vector<std::string> visible_entries(const std::optional<std::string>& cuda_visible_devices,
                                         const std::vector<std::string>& uuids) {
  if (!cuda_visible_devices) return uuids;
  std::vector<std::string> visible;
  const std::string_view list(*cuda_visible_devices);
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    auto uuid = uuid_of(trimmed_entry(list.substr(begin, end - begin)), uuids);
    if (uuid.empty()) break;
    if (std::ranges::find(visible, uuid) != visible.end()) return {};
    visible.push_back(std::move(uuid));
    begin = end + 1;
  }
  return visible;
}

VisibleGpus look_up_gpus() {
  const Nvml nvml;
  const char* list = getenv(rendezvous::variable::kCudaVisibleDevices);
  const auto visible = visible_entries(
      list != nullptr ? std::optional<std::string>(list) : std::nullopt, nvml.uuids());
  if (visible.empty()) return {};
  return {.count = static_cast<int>(visible.size()), .memory = nvml.memory_of(visible.front())};
}

}  // namespace mgpu::recipes
