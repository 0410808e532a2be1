#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::launcher {

// The memory files of a cgroup, of v1 or v2. Reading them costs some microseconds. Numbers that
// cannot be read are 0.
class MemoryCgroup {
 public:
  // Nullopt: the folder has no memory controller.
  static std::optional<MemoryCgroup> in(const std::string& folder);

  const std::string& folder() const { return folder_; }
  std::uint64_t limit() const;  // 0: none
  std::uint64_t peak() const;   // with the page cache
  // The memory of its processes, without page cache that the kernel can drop.
  std::uint64_t used_bytes() const;
  // How many of its processes the kernel's OOM killer has killed. In v2 this includes the cgroups
  // below it.
  std::uint64_t oom_kills() const;

  // Limits memory, and swap so that the limit is not evaded. In v2 an OOM then kills all processes
  // of the cgroup. False: not permitted, or the limit is not in force.
  bool set_limit(std::uint64_t bytes) const;

  // This cgroup or the one above it with the smallest limit; nullopt: there is no limit.
  std::optional<MemoryCgroup> with_smallest_limit() const;

 private:
  MemoryCgroup(std::string folder, bool v2) : folder_(std::move(folder)), v2_(v2) {}
  std::string file(const char* v1, const char* v2) const;

  std::string folder_;
  bool v2_;
};

// Whether a path that the kernel shows, as in /proc/PID/cgroup, is that of the cgroup or of one
// below it. Compares the last three parts of the folder, because the kernel's path begins at the
// root of a namespace and the folder at that of the machine; pure.
bool names_cgroup(std::string_view path, std::string_view folder);

// Whether the process is in the cgroup or in one below it; true if it has ended.
bool is_in_cgroup(pid_t pid, const std::string& folder);

// The number after a name in the text of memory.events, memory.oom_control or memory.stat, such as
// "oom_kill 3"; 0 if there is none; pure.
std::uint64_t number_named(const std::string& text, const char* name);

}  // namespace mgpu::launcher
