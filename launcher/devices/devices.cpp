#include "launcher/devices/devices.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "launcher/options/options.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

std::string_view trimmed_entry(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// The value of "Key: value" in a file of such lines.
std::string field(std::string_view text, std::string_view key) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = text.substr(begin, end - begin);
    if (line.starts_with(key) && line.substr(key.size()).starts_with(":"))
      return std::string(trimmed_entry(line.substr(key.size() + 1)));
    begin = end + 1;
  }
  return {};
}

// Device cgroups and containers leave a GPU in /proc but remove its device. access() checks the
// same permission as open() without waking the GPU.
bool may_open(const Roots& roots, const std::string& minor) {
  return ::access(fmt::format("{}/nvidia{}", roots.dev, minor).c_str(), R_OK | W_OK) == 0;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// As CUDA reads an entry: "1" and "1st" are both 1.
std::optional<int> leading_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::vector<int> with_uuid(std::string_view beginning, const std::vector<Gpu>& gpus) {
  std::vector<int> found;
  for (const auto& gpu : gpus)
    if (gpu.uuid.starts_with(beginning)) found.push_back(gpu.index);
  return found;
}

// MIG-GPU-<uuid>/<instance>/<compute instance> names its GPU, MIG-<uuid> does not.
VisibleGpu mig(std::string_view name, const std::vector<Gpu>& gpus) {
  const auto parent = name.substr(4, name.find('/') - 4);
  const auto found = parent.starts_with("GPU-") ? with_uuid(parent, gpus) : std::vector<int>();
  return {std::string(name), found.size() == 1 ? found.front() : -1};
}

// One entry of CUDA_VISIBLE_DEVICES; nullopt where the list ends. All entries are of one kind.
std::optional<VisibleGpu> entry(std::string_view text, std::string_view kind,
                                const std::vector<Gpu>& gpus) {
  if (gpus.empty() || !text.starts_with(kind)) return std::nullopt;
  if (kind == "MIG-") return mig(text, gpus);
  if (kind == "GPU-") {
    const auto found = with_uuid(text, gpus);
    if (found.size() == 1) return VisibleGpu{std::string(text), found.front()};
    // Without /proc the UUIDs are unknown, so the list is trusted.
    const bool known =
        std::any_of(gpus.begin(), gpus.end(), [](auto& g) { return !g.uuid.empty(); });
    return known ? std::nullopt : std::optional(VisibleGpu{std::string(text), -1});
  }
  const auto index = leading_number(text);
  if (!index || *index < 0 || *index >= static_cast<int>(gpus.size())) return std::nullopt;
  return VisibleGpu{std::to_string(*index), *index};
}

std::vector<VisibleGpu> all_of(const std::vector<Gpu>& gpus) {
  std::vector<VisibleGpu> all;
  for (const auto& gpu : gpus) all.push_back({std::to_string(gpu.index), gpu.index});
  return all;
}

std::string describe_gpus(const std::vector<Gpu>& gpus) {
  if (gpus.empty()) return "this machine has no usable GPU";
  if (gpus.size() == 1) return "this machine has GPU 0 only";
  return fmt::format("this machine has GPUs 0-{}", gpus.size() - 1);
}

VisibleGpu chosen_gpu(const std::string& name, const std::vector<Gpu>& gpus) {
  if (!gpus.empty() && name.starts_with("MIG-")) return mig(name, gpus);
  if (!gpus.empty() && name.starts_with("GPU-")) {
    const auto found = with_uuid(name, gpus);
    if (found.size() == 1) return {name, found.front()};
    throw UsageError(
        found.empty()
            ? fmt::format("--gpus {}: no GPU has a UUID with this prefix; see `mgpu-run devices`",
                          shown(name))
            : fmt::format("--gpus {}: {} GPUs have a UUID with this prefix; write more of the UUID",
                          shown(name), found.size()));
  }
  const auto index = is_number(name) ? leading_number(name) : std::nullopt;
  if (!index || *index >= static_cast<int>(gpus.size()))
    throw UsageError(
        fmt::format("--gpus {}: {}; see `mgpu-run devices`", shown(name), describe_gpus(gpus)));
  return {std::to_string(*index), *index};
}

}  // namespace

std::vector<Gpu> find_gpus(const Roots& roots) {
  std::vector<Gpu> gpus;
  const auto folder = roots.proc + "/driver/nvidia/gpus";
  for (const auto& bus_id : names_in(folder)) {
    const auto text = read_trimmed(fmt::format("{}/{}/information", folder, bus_id)).value_or("");
    if (const auto minor = field(text, "Device Minor"); is_number(minor) && !may_open(roots, minor))
      continue;
    if (field(text, "GPU Excluded") == "Yes") continue;  // the driver is configured to exclude it
    auto uuid = field(text, "GPU UUID");
    if (uuid.find('?') != std::string::npos)
      uuid.clear();  // placeholder until the GPU is first opened
    gpus.push_back({0, field(text, "Model"), uuid, sysfs_bus_id(bus_id)});
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) {
    // A domain with more digits is higher.
    return std::pair(a.bus_id.size(), a.bus_id) < std::pair(b.bus_id.size(), b.bus_id);
  });
  if (gpus.empty() && ::access(folder.c_str(), F_OK) != 0)
    for (const auto& name : names_in(roots.dev))
      if (name.starts_with("nvidia") && is_number(name.substr(6)) &&
          may_open(roots, name.substr(6)))
        gpus.emplace_back();
  for (size_t i = 0; i < gpus.size(); ++i) gpus[i].index = static_cast<int>(i);
  return gpus;
}

std::vector<VisibleGpu> visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                                     const std::vector<Gpu>& gpus) {
  if (!cuda_visible_devices) return all_of(gpus);
  std::string_view rest = *cuda_visible_devices;
  const auto first = trimmed_entry(rest);
  const std::string_view kind = first.starts_with("GPU-")   ? "GPU-"
                                : first.starts_with("MIG-") ? "MIG-"
                                                            : "";
  std::vector<VisibleGpu> visible;
  std::set<std::string> seen;
  while (true) {
    const size_t comma = rest.find(',');
    const auto one = entry(trimmed_entry(rest.substr(0, comma)), kind, gpus);
    if (!one) return visible;
    // Two prefixes of one UUID are the same GPU; two MIG instances of one GPU are not.
    const bool whole = kind != "MIG-" && one->index >= 0;
    if (!seen.insert(whole ? std::to_string(one->index) : one->name).second) return {};
    visible.push_back(*one);
    if (comma == std::string_view::npos) return visible;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<VisibleGpu> chosen_gpus(const std::vector<std::string>& wanted,
                                    const std::vector<Gpu>& gpus) {
  std::vector<VisibleGpu> all;
  for (const auto& name : wanted) {
    const auto one = chosen_gpu(name, gpus);
    const bool whole = !name.starts_with("MIG-");
    for (const auto& other : all)
      if (other.name == one.name || (whole && other.index == one.index))
        throw UsageError(fmt::format("--gpus {}: this GPU is already listed as {}; list it once",
                                     shown(name), shown(other.name)));
    all.push_back(one);
  }
  return all;
}

Locality locality_of(const std::string& bus_id, const Roots& roots) {
  if (bus_id.empty()) return {};
  const auto folder = fmt::format("{}/bus/pci/devices/{}", roots.sys, bus_id);
  return {read_number(folder + "/numa_node", -1),
          parse_id_list(read_trimmed(folder + "/local_cpulist").value_or(""))};
}

std::vector<int> nodes_of(const std::vector<VisibleGpu>& visible, const std::vector<Gpu>& gpus,
                          const Roots& roots) {
  std::vector<int> nodes;
  for (const auto& one : visible)
    nodes.push_back(one.index < 0 ? -1 : locality_of(gpus.at(one.index).bus_id, roots).numa_node);
  return nodes;
}

std::string sysfs_bus_id(std::string_view address) {
  std::string lower(address);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  unsigned domain = 0;
  const auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), domain, 16);
  if (error != std::errc() || end == lower.data() + lower.size() || *end != ':') return lower;
  return fmt::format("{:04x}{}", domain, std::string_view(lower).substr(end - lower.data()));
}

}  // namespace mgpu::launcher
