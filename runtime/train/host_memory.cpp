#include "runtime/train/host_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "rendezvous/base/small_file.hpp"
#include "runtime/checkpoint/file.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;
using rendezvous::read_kernel_file;

constexpr auto kUnlimited = std::numeric_limits<std::int64_t>::max();

// The first number after `key` and blanks. An empty key: at the beginning of the text.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view key) {
  auto at = text.find(key);
  if (at == text.npos) return {};
  at = text.find_first_not_of(' ', at + key.size());
  std::int64_t number = 0;
  if (at == text.npos ||
      std::from_chars(text.data() + at, text.data() + text.size(), number).ec != std::errc())
    return {};
  return number;
}

// The files of a version of control groups.
struct GroupFiles {
  const char *limit, *usage, *reclaimable;
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

// What a group may still use: its limit minus its usage, of which the kernel can reclaim a part.
std::int64_t left_in_group(const std::string& folder, const GroupFiles& files) {
  const auto number = [&](const char* name) {
    return number_after(read_kernel_file(fmt::format("{}/{}", folder, name)).value_or(""), "");
  };
  const auto limit = number(files.limit), usage = number(files.usage);
  if (!limit || !usage) return kUnlimited;  // "max", or no such controller here
  const auto statistics = read_kernel_file(folder + "/memory.stat").value_or("");
  const auto reclaimable = number_after(statistics, files.reclaimable).value_or(0);
  return std::max<std::int64_t>(0, *limit - *usage + reclaimable);
}

// The least that the group and its parents have left. In a container, its own group may be mounted
// as the root.
std::int64_t left_in_groups(const std::string& mount, fs::path group, const GroupFiles& files) {
  auto least = left_in_group(mount, files);
  for (; group.has_relative_path(); group = group.parent_path())
    least = std::min(least, left_in_group(mount + group.string(), files));
  return least;
}

}  // namespace

std::int64_t available_host_memory(const std::string& root) {
  const auto machine =
      number_after(read_kernel_file(root + "/proc/meminfo").value_or(""), "MemAvailable:");
  if (!machine) return 0;
  auto least = *machine * 1024;
  std::istringstream groups(read_kernel_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto path = line.substr(second + 1);
    if (controllers == ",,")
      least = std::min(least, left_in_groups(root + "/sys/fs/cgroup", path, kVersion2));
    else if (controllers.find(",memory,") != controllers.npos)
      least = std::min(least, left_in_groups(root + "/sys/fs/cgroup/memory", path, kVersion1));
  }
  return least;
}

std::string lack_of_host_memory(const std::vector<HostNeed>& ranks) {
  std::map<std::int64_t, HostNeed> nodes;
  for (const auto& rank : ranks) {
    auto& node = nodes.try_emplace(rank.node, HostNeed{rank.node, 0, kUnlimited}).first->second;
    node.bytes += rank.bytes;
    node.available = std::min(node.available, rank.available);
  }
  for (const auto& [number, node] : nodes) {
    const auto usable = kUsableHostMemory * static_cast<double>(node.available);
    if (static_cast<double>(node.bytes) <= usable) continue;
    return fmt::format("{} of host memory on node {}, which may use {:.0f} % of the {} available",
                       checkpoint::human_size(static_cast<std::uint64_t>(node.bytes)), number,
                       100 * kUsableHostMemory,
                       checkpoint::human_size(static_cast<std::uint64_t>(node.available)));
  }
  return {};
}

}  // namespace mgpu::train
