#include "launcher/memory/process_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/small_file.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::read_kernel_file;

constexpr std::size_t kMostProcesses = 4096;  // of a rank; a fork bomb is not followed further

std::uint64_t number_in(std::string_view text) {
  const auto begin = text.find_first_of("0123456789");
  std::uint64_t value = 0;
  if (begin != text.npos) std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return value;
}

std::uint64_t kib_after(std::string_view text, std::string_view name) {
  const auto at = text.find(name);
  return at == text.npos ? 0 : number_in(text.substr(at + name.size())) * 1024;
}

// Without mapped files, which are page cache.
std::uint64_t resident_bytes(pid_t pid) {
  const auto text = read_kernel_file(fmt::format("/proc/{}/status", pid)).value_or("");
  return kib_after(text, "\nRssAnon:") + kib_after(text, "\nRssShmem:");
}

void add_children(pid_t pid, std::vector<pid_t>& found) {
  std::error_code ended;  // the process may end meanwhile
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid), ended);
  for (; !ended && thread != std::filesystem::directory_iterator(); thread.increment(ended)) {
    const auto text = read_kernel_file(thread->path() / "children").value_or("");
    for (std::string_view left = text; !left.empty() && found.size() < kMostProcesses;) {
      const auto end = left.find(' ');
      if (const auto child = number_in(left.substr(0, end)); child != 0)
        found.push_back(static_cast<pid_t>(child));
      left.remove_prefix(end == left.npos ? left.size() : end + 1);
    }
  }
}

// Of the process, and of its children that it has waited for: fields 14 to 17 of /proc/PID/stat.
std::uint64_t cpu_ticks(pid_t pid) {
  const auto text = read_kernel_file(fmt::format("/proc/{}/stat", pid)).value_or("");
  const auto name_end = text.rfind(')');
  if (name_end == text.npos) return 0;
  std::string_view left = std::string_view(text).substr(name_end + 1);
  std::uint64_t ticks = 0;
  for (int field = 3; field <= 17; ++field) {
    left.remove_prefix(std::min(left.find_first_not_of(' '), left.size()));
    if (field >= 14) ticks += number_in(left.substr(0, left.find(' ')));
    left.remove_prefix(std::min(left.find(' '), left.size()));
  }
  return ticks;
}

std::uint64_t share_of(pid_t pid) {
  const auto text = read_kernel_file(fmt::format("/proc/{}/smaps_rollup", pid)).value_or("");
  return kib_after(text, "\nPss_Anon:") + kib_after(text, "\nPss_Shmem:");
}

}  // namespace

RankMemory memory_of(pid_t rank) {
  RankMemory memory;
  memory.own = resident_bytes(rank);
  if (memory.own == 0) return memory;
  add_children(rank, memory.children);
  for (std::size_t i = 0; i < memory.children.size(); ++i) {
    memory.children_bytes += resident_bytes(memory.children[i]);
    add_children(memory.children[i], memory.children);
  }
  return memory;
}

std::uint64_t exact_bytes(pid_t rank, const RankMemory& memory) {
  auto bytes = share_of(rank);
  if (bytes == 0) return 0;
  for (const pid_t child : memory.children) bytes += share_of(child);
  return bytes;
}

std::chrono::milliseconds cpu_time_of(pid_t rank) {
  std::vector<pid_t> processes{rank};
  std::uint64_t ticks = 0;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    ticks += cpu_ticks(processes[i]);
    add_children(processes[i], processes);
  }
  static const auto per_second = static_cast<std::uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  return std::chrono::milliseconds(ticks * 1000 / per_second);
}

HostMemory host_memory() {
  const auto text = read_kernel_file("/proc/meminfo").value_or("");
  const auto total = kib_after(text, "MemTotal:"), available = kib_after(text, "MemAvailable:");
  return {.used = total - available, .total = total};
}

}  // namespace mgpu::launcher
