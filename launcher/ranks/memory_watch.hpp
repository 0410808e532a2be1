#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/ranks/cgroup.hpp"

namespace mgpu::launcher {

// Counts the kernel's OOM kills in the cgroup of the ranks. It reads a few small files in each call
// and does nothing in between.
class MemoryWatch {
 public:
  // `job_cgroup` is the job's own v2 cgroup, empty: the ranks share ours.
  MemoryWatch(const CgroupPaths& paths, const std::string& job_cgroup);

  // Starts counting OOM kills from zero.
  void begin_attempt();
  // The current facts. Zero kills when the files cannot be read.
  MemoryFacts facts() const;

 private:
  std::uint64_t kills() const;

  std::string events_file_;  // empty: no counter to read
  std::string limit_file_, peak_file_;
  std::string folder_;
  std::uint64_t baseline_ = 0;
};

// "oom_kill 3" in the text of memory.events or memory.oom_control; pure.
std::uint64_t oom_kills_in(const std::string& text);

}  // namespace mgpu::launcher
