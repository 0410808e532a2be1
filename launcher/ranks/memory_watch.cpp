#include "launcher/ranks/memory_watch.hpp"

#include <unistd.h>

#include <charconv>
#include <sstream>

#include "rendezvous/base/small_file.hpp"

namespace mgpu::launcher {
namespace {

bool readable(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

// 0 for no limit: "max", or in v1 a number near 2^63.
std::uint64_t bytes_in(const std::string& path) {
  const auto text = rendezvous::read_kernel_file(path).value_or("");
  std::uint64_t bytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  return bytes >= (1ull << 62) ? 0 : bytes;
}

}  // namespace

std::uint64_t oom_kills_in(const std::string& text) {
  std::istringstream in(text);
  std::string name;
  for (std::uint64_t value; in >> name >> value;)
    if (name == "oom_kill") return value;
  return 0;
}

MemoryWatch::MemoryWatch(const CgroupPaths& paths, const std::string& job_cgroup) {
  // Uses the job's cgroup if it has the memory controller, else our own.
  for (const auto& folder : {job_cgroup, paths.v2}) {
    if (folder.empty() || !readable(folder + "/memory.events")) continue;
    folder_ = folder;
    events_file_ = folder + "/memory.events";
    limit_file_ = folder + "/memory.max";
    peak_file_ = folder + "/memory.peak";
    return;
  }
  if (paths.v1_memory.empty() || !readable(paths.v1_memory + "/memory.oom_control")) return;
  folder_ = paths.v1_memory;
  events_file_ = folder_ + "/memory.oom_control";
  limit_file_ = folder_ + "/memory.limit_in_bytes";
  peak_file_ = folder_ + "/memory.max_usage_in_bytes";
}

std::uint64_t MemoryWatch::kills() const {
  if (events_file_.empty()) return 0;
  return oom_kills_in(rendezvous::read_kernel_file(events_file_).value_or(""));
}

void MemoryWatch::begin_attempt() {
  baseline_ = kills();
}

MemoryFacts MemoryWatch::facts() const {
  MemoryFacts facts;
  const auto now = kills();
  facts.oom_kills = now > baseline_ ? now - baseline_ : 0;
  facts.oom_kills_known = !events_file_.empty();
  if (!folder_.empty()) {
    facts.cgroup = folder_;
    facts.limit_bytes = bytes_in(limit_file_);
    facts.peak_bytes = bytes_in(peak_file_);
  }
  facts.host_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                     static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return facts;
}

}  // namespace mgpu::launcher
