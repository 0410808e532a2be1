#include "launcher/ranks/memory_cgroup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <sstream>
#include <string_view>
#include <utility>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::read_kernel_file;

bool readable(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

// 0 for no limit: "max", or in v1 a number near 2^63.
std::uint64_t bytes_in(const std::string& path) {
  const auto text = read_kernel_file(path).value_or("");
  std::uint64_t bytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  return bytes >= (1ull << 62) ? 0 : bytes;
}

bool write_text(const std::string& path, const std::string& text) {
  const rendezvous::UniqueFd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == ssize_t(text.size());
}

}  // namespace

std::uint64_t number_named(const std::string& text, const char* name) {
  std::istringstream in(text);
  std::string word;
  for (std::uint64_t value; in >> word >> value;)
    if (word == name) return value;
  return 0;
}

std::optional<MemoryCgroup> MemoryCgroup::in(const std::string& folder) {
  if (folder.empty()) return std::nullopt;
  if (readable(folder + "/memory.events")) return MemoryCgroup(folder, true);
  if (readable(folder + "/memory.oom_control")) return MemoryCgroup(folder, false);
  return std::nullopt;
}

std::string MemoryCgroup::file(const char* v1, const char* v2) const {
  return folder_ + "/memory." + (v2_ ? v2 : v1);
}

std::uint64_t MemoryCgroup::limit() const {
  return bytes_in(file("limit_in_bytes", "max"));
}

std::uint64_t MemoryCgroup::peak() const {
  return bytes_in(file("max_usage_in_bytes", "peak"));
}

std::uint64_t MemoryCgroup::used_bytes() const {
  const auto usage = bytes_in(file("usage_in_bytes", "current"));
  const auto text = read_kernel_file(file("stat", "stat")).value_or("");
  const auto cache = number_named(text, v2_ ? "active_file" : "total_active_file") +
                     number_named(text, v2_ ? "inactive_file" : "total_inactive_file");
  return usage > cache ? usage - cache : 0;
}

std::uint64_t MemoryCgroup::oom_kills() const {
  return number_named(read_kernel_file(file("oom_control", "events")).value_or(""), "oom_kill");
}

bool MemoryCgroup::set_limit(std::uint64_t bytes) const {
  const auto text = std::to_string(bytes);
  if (!write_text(file("limit_in_bytes", "max"), text)) return false;
  if (const auto now = limit(); now == 0 || now > bytes) return false;
  // The kernel may not account for swap.
  write_text(file("memsw.limit_in_bytes", "swap.max"), v2_ ? "0" : text);
  if (v2_) write_text(folder_ + "/memory.oom.group", "1");
  return true;
}

bool names_cgroup(std::string_view path, std::string_view folder) {
  auto from = folder.size();
  for (int parts = 0; parts < 3 && from != 0 && from != folder.npos; ++parts)
    from = folder.rfind('/', from - 1);
  if (from == folder.npos || from == 0) return false;
  const auto tail = folder.substr(from);
  const auto at = path.find(tail);
  if (at == path.npos) return false;
  const auto end = at + tail.size();
  return end == path.size() || path[end] == '/' || path[end] == '\n';
}

bool is_in_cgroup(pid_t pid, const std::string& folder) {
  const auto own = read_kernel_file("/proc/" + std::to_string(pid) + "/cgroup");
  if (!own || own->empty()) return true;
  std::istringstream lines(*own);
  for (std::string line; std::getline(lines, line);)
    if (names_cgroup(line, folder)) return true;
  return false;
}

std::optional<MemoryCgroup> MemoryCgroup::with_smallest_limit() const {
  std::optional<MemoryCgroup> found;
  std::uint64_t smallest = 0;
  for (MemoryCgroup cgroup = *this; readable(cgroup.file("limit_in_bytes", "max"));) {
    const auto limit = cgroup.limit();
    if (limit != 0 && (smallest == 0 || limit < smallest)) {
      smallest = limit;
      found = cgroup;
    }
    const auto slash = cgroup.folder_.rfind('/');
    if (slash == std::string::npos || slash == 0) break;
    cgroup.folder_.resize(slash);
  }
  return found;
}

}  // namespace mgpu::launcher
