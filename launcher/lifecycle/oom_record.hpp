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
  std::string cgroup = {};  // as the kernel counts from the machine's root; empty: unknown
};

// From a line of the kernel's log such as "Memory cgroup out of memory: Killed process 4711
// (python3) total-vm:1064032kB, anon-rss:130048kB, file-rss:5632kB, shmem-rss:0kB, ..."; pure.
std::optional<OomRecord> oom_record_in(std::string_view line);

// From the line before, such as "oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/job/rank_0,
// task=python3,pid=4711,uid=0": a record with pid and cgroup; pure.
std::optional<OomRecord> oom_cgroup_in(std::string_view line);

}  // namespace mgpu::launcher
