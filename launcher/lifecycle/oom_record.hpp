#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::launcher {

// A process that the kernel's OOM killer has killed.
struct OomRecord {
  pid_t pid = 0;  // as the kernel's first pid namespace counts
  std::string name;
  std::uint64_t bytes = 0;  // resident
};

// From a line of the kernel's log such as "Memory cgroup out of memory: Killed process 4711
// (python3) total-vm:1064032kB, anon-rss:130048kB, file-rss:5632kB, shmem-rss:0kB, ..."; pure.
std::optional<OomRecord> oom_record_in(std::string_view line);

}  // namespace mgpu::launcher
