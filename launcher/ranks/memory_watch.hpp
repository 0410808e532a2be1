#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/ranks/cgroup.hpp"

namespace mgpu::launcher {

// Counts the kernel's OOM kills in the cgroup our ranks run in. It reads a few small files when
// asked and nothing in between.
class MemoryWatch {
 public:
  // `job_cgroup` is the ranks' own v2 cgroup, empty: they share ours.
  MemoryWatch(const CgroupPaths& paths, const std::string& job_cgroup);

  // From here on kills are new.
  void begin_attempt();
  // What is known now. Zero kills where nothing can be read.
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
