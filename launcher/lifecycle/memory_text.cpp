#include "launcher/lifecycle/memory_text.hpp"

#include <string_view>

#include <fmt/format.h>

#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {
namespace {

constexpr double kBytesInMiB = 1 << 20, kBytesInGiB = 1 << 30;

}  // namespace

std::string size_text(std::uint64_t bytes) {
  const double mib = double(bytes) / kBytesInMiB;
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

std::string share_text(std::uint64_t used, std::uint64_t total) {
  const bool large = double(total) >= kBytesInGiB;
  const double unit = large ? kBytesInGiB : kBytesInMiB;
  return fmt::format("{:.1f} of {:.1f} {}", double(used) / unit, double(total) / unit,
                     large ? "GiB" : "MiB");
}

std::string memory_numbers(const MemoryFacts& memory) {
  std::string text;
  const auto add = [&](std::string_view what, std::uint64_t bytes) {
    if (bytes == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, size_text(bytes));
  };
  add("this rank used up to", memory.rank_peak_bytes);
  if (memory.children > 0)
    add(memory.children == 1 ? "its child process"
                             : fmt::format("its {} child processes", memory.children),
        memory.children_bytes);
  // Without an OOM kill the cgroup may be shared, and its peak may come from another program.
  if (memory.oom_kills != 0) add("the cgroup up to", memory.peak_bytes);
  if (memory.limit_bytes != 0) text += fmt::format(" of {}", size_text(memory.limit_bytes));
  if (memory.limit_bytes == 0) add("the machine has", memory.host_bytes);
  if (memory.bytes_per_minute > 0)
    text += fmt::format("; before that, the rank and its children grew by {} a minute",
                        size_text(static_cast<std::uint64_t>(memory.bytes_per_minute)));
  if (!memory.victim.empty()) text += fmt::format("; the kernel killed {}", memory.victim);
  return text;
}

}  // namespace mgpu::launcher
