#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace mgpu::launcher {

// The resident memory of a rank's processes, from /proc. As in a cgroup, mapped files do not count,
// such as a data set: the kernel can drop their pages. Shared memory does.
struct RankMemory {
  std::uint64_t own = 0;  // bytes, of the rank's own process
  std::uint64_t children_bytes = 0;
  std::vector<pid_t> children;  // and their children

  // Memory that the processes share is counted several times.
  std::uint64_t total() const { return own + children_bytes; }
};

// Of a process and its descendants; all zero if it has ended. Without the kernel's
// /proc/PID/task/TID/children there seem to be no children.
RankMemory memory_of(pid_t rank);

// What the same processes use, each shared page counted once (from Linux 5.4 on). It takes about a
// millisecond for each 100 MiB. 0: the kernel does not report it for the rank.
std::uint64_t exact_bytes(pid_t rank, const RankMemory& memory);

// The CPU time that the rank's process and its descendants have used so far; 0 if it has ended.
std::chrono::milliseconds cpu_time_of(pid_t rank);

// The memory of the machine, and what is in use, without page cache that the kernel can drop.
struct HostMemory {
  std::uint64_t used = 0, total = 0;
};
HostMemory host_memory();

}  // namespace mgpu::launcher
