#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "launcher/doctor/checks.hpp"
#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::uint64_t kBusy = kGiB;  // a desktop uses less than that

// NVML's bits for the reasons that reduce the clocks, without idleness and the power limit, which
// every busy GPU reaches.
constexpr std::uint64_t kHardwareSlowdown = 0x8, kTooHot = 0x20 | 0x40, kPowerBrake = 0x80;

Finding driver_finding(const DoctorFacts& facts) {
  const auto& devices = facts.devices;
  if (facts.nvml_timed_out)
    return {"driver", Verdict::fail, "the NVIDIA driver does not respond",
            "a GPU may have fallen off the bus: see `dmesg`, then restart the machine"};
  if (!devices.shortfall.empty() && facts.device_files)
    return {
        "driver", Verdict::fail, devices.shortfall,
        "the kernel driver is loaded but NVML cannot reach it: after a driver update restart the "
        "machine; start a container with --gpus all and the utility capability"};
  if (!devices.shortfall.empty())
    return {"driver", Verdict::warn, "no NVIDIA driver: jobs run on CPUs",
            "if the machine has GPUs, install the driver; start a container with --gpus all"};
  return {"driver", Verdict::pass,
          fmt::format("NVIDIA {}{}", devices.driver,
                      facts.driver_cuda ? ", up to CUDA " + cuda_text(facts.driver_cuda) : "")};
}

int visible_count(const DeviceReport& devices) {
  return static_cast<int>(std::count_if(devices.gpus.begin(), devices.gpus.end(),
                                        [](const auto& gpu) { return gpu.visible; }));
}

// "2 NVIDIA H200"; with several models each with its number.
std::string kinds_text(const DeviceReport& devices) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const auto& entry : devices.gpus) {
    const auto name = entry.gpu.name.empty() ? std::string("GPU") : entry.gpu.name;
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.first == name; });
    if (known == kinds.end())
      kinds.emplace_back(name, 1);
    else
      ++known->second;
  }
  std::string text;
  for (const auto& [name, count] : kinds)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  return text;
}

Finding gpus_finding(const DoctorFacts& facts) {
  const auto& devices = facts.devices;
  if (devices.gpus.empty())
    return {"gpus", Verdict::warn, "the driver reports no GPU: jobs run on CPUs",
            "see `lspci` and `dmesg`; start a container with --gpus all"};
  const int visible = visible_count(devices);
  const auto text = kinds_text(devices);
  const auto variable =
      fmt::format("CUDA_VISIBLE_DEVICES={}", facts.cuda_visible_devices.value_or(""));
  if (visible == 0)
    return {"gpus", Verdict::warn, fmt::format("{}; {} hides all of them", text, variable),
            "unset CUDA_VISIBLE_DEVICES, or jobs run on CPUs"};
  if (visible < static_cast<int>(devices.gpus.size()))
    return {"gpus", Verdict::pass, fmt::format("{}; {} shows {}", text, variable, visible)};
  std::set<std::string> names;
  for (const auto& entry : devices.gpus) names.insert(entry.gpu.name);
  if (names.size() > 1)
    return {"gpus", Verdict::warn, text + ": different models",
            "the slowest GPU sets the pace: select GPUs with --gpus, or balance the work with "
            "batch_sharding: adaptive"};
  return {"gpus", Verdict::pass, text};
}

void add_use(const DeviceReport::Entry& entry, std::vector<Finding>& findings) {
  if (entry.memory_used < kBusy) return;
  findings.push_back(
      {fmt::format("gpu {} memory", entry.gpu.index), Verdict::warn,
       fmt::format("{} of {} in use", size_text(entry.memory_used), size_text(entry.memory_total)),
       "another program uses it: see `nvidia-smi`, or select other GPUs with --gpus"});
}

void add_clocks(const std::string& gpu, std::uint64_t reasons, std::vector<Finding>& findings) {
  if (reasons & kTooHot)
    findings.push_back(
        {gpu + " clocks", Verdict::warn, "clocks are reduced: too hot", "check fans and air flow"});
  else if (reasons & (kHardwareSlowdown | kPowerBrake))
    findings.push_back({gpu + " clocks", Verdict::warn, "clocks are reduced by the hardware",
                        "check the power supply: `nvidia-smi -q -d PERFORMANCE`"});
}

void add_health(const DeviceReport::Entry& entry, const Nvml::Health& health,
                std::vector<Finding>& findings) {
  const auto gpu = fmt::format("gpu {}", entry.gpu.index);
  if (health.remapping_failed)
    findings.push_back({gpu + " memory cells", Verdict::fail, "a bad row could not be remapped",
                        "the GPU is defective: replace it"});
  else if (health.remapping_pending)
    findings.push_back({gpu + " memory cells", Verdict::warn, "bad rows are waiting to be remapped",
                        "restart the machine, or reset the GPU, before long jobs"});
  if (health.uncorrected_errors > 0)
    findings.push_back({gpu + " ECC", Verdict::warn,
                        fmt::format("{} uncorrected memory errors since the driver was loaded",
                                    health.uncorrected_errors),
                        "restart the machine; if the errors return, replace the GPU"});
  if (health.compute_prohibited)
    findings.push_back({gpu + " mode", Verdict::fail, "compute mode is Prohibited",
                        "run as root: nvidia-smi -c DEFAULT"});
  if (health.mig)
    findings.push_back({gpu + " mode", Verdict::warn, "MIG is enabled",
                        "a job of several ranks needs whole GPUs: run as root: nvidia-smi -mig 0"});
  add_clocks(gpu, health.slowdown, findings);
}

int major_of(const std::string& capability) {
  int major = 0;
  std::from_chars(capability.data(), capability.data() + capability.size(), major);
  return major;
}

// The visible pairs between which there is no P2P.
std::string pairs_without_p2p(const DeviceReport& devices) {
  std::string text;
  for (std::size_t i = 0; i < devices.peers.size(); ++i)
    for (std::size_t j = i + 1; j < devices.peers.size(); ++j)
      if (devices.gpus[i].visible && devices.gpus[j].visible &&
          !(devices.peers[i][j] && devices.peers[j][i]))
        text += fmt::format("{}{}-{}", text.empty() ? "" : ", ", i, j);
  return text;
}

// The kinds of links between the visible GPUs, each once.
std::string link_kinds(const DeviceReport& devices) {
  std::set<std::string> kinds;
  for (std::size_t i = 0; i < devices.links.size(); ++i)
    for (std::size_t j = i + 1; j < devices.links.size(); ++j)
      if (devices.gpus[i].visible && devices.gpus[j].visible) kinds.insert(devices.links[i][j]);
  return fmt::format("{}", fmt::join(kinds, ", "));
}

Finding links_finding(const DeviceReport& devices) {
  const auto missing = pairs_without_p2p(devices);
  const auto kinds = link_kinds(devices);
  if (!missing.empty())
    return {
        "p2p", Verdict::warn,
        fmt::format("no P2P between GPUs {} (connected by {})", missing, kinds),
        "NCCL copies through host memory, which is slow: disable PCIe ACS and the IOMMU, or in a "
        "virtual machine pass the GPUs through together; some desktop GPUs do not support P2P"};
  const bool nvlink = kinds.find("NV") != kinds.npos;
  return {"p2p", Verdict::pass,
          fmt::format("P2P between all pairs, {}{}", kinds, nvlink ? "" : " (no NVLink)")};
}

}  // namespace

std::vector<Finding> examine_gpus(const DoctorFacts& facts) {
  const auto& devices = facts.devices;
  std::vector<Finding> findings{driver_finding(facts)};
  if (facts.nvml_timed_out || (!devices.shortfall.empty() && devices.gpus.empty())) return findings;
  findings.push_back(gpus_finding(facts));
  for (std::size_t i = 0; i < devices.gpus.size(); ++i) {
    const auto& entry = devices.gpus[i];
    if (!entry.visible) continue;
    add_use(entry, findings);
    if (i < facts.health.size()) add_health(entry, facts.health[i], findings);
    if (const int major = major_of(entry.capability); major > 0 && major < 8)
      findings.push_back(
          {fmt::format("gpu {} capability", entry.gpu.index), Verdict::warn,
           fmt::format("compute capability {} does not support bf16", entry.capability),
           "leave dtype out: auto computes in fp16 there"});
  }
  if (visible_count(devices) > 1 && !devices.links.empty())
    findings.push_back(links_finding(devices));
  return findings;
}

std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace mgpu::launcher
