#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/memory_cgroup.hpp"
#include "launcher/ranks/rank_cgroups.hpp"

namespace mgpu::launcher {

// Counts the kernel's OOM kills in the cgroups of the ranks. It reads a few small files in each
// call and does nothing in between.
class MemoryWatch {
 public:
  // `job_cgroup` is the job's own v2 cgroup, empty: the ranks share ours. `ranks` outlives it;
  // null: no rank has its own cgroup.
  MemoryWatch(const CgroupPaths& paths, const std::string& job_cgroup,
              const RankCgroups* ranks = nullptr);

  // Starts counting OOM kills from zero. The ranks' cgroups are new.
  void begin_attempt(int ranks);
  // The folder of the cgroup that all ranks are in; empty: it has no memory controller.
  std::string shared_cgroup() const { return shared_ ? shared_->folder() : std::string(); }
  // The current facts about a rank. Zero kills when the files cannot be read.
  MemoryFacts facts(int local_rank = 0) const;

 private:
  std::uint64_t kills() const;

  std::optional<MemoryCgroup> shared_;
  const RankCgroups* ranks_;
  std::uint64_t baseline_ = 0;
  int number_of_ranks_ = 0;
};

}  // namespace mgpu::launcher
