#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// How a process starts in a cgroup; -1: not used.
struct CgroupEntry {
  int folder = -1;  // of v2: the process is created in it
  int procs = -1;   // cgroup.procs of v1: the process moves itself before it runs its program
};

// A memory cgroup for each rank where one can be made, in which the kernel counts and limits the
// memory of the rank and of its children.
//
// In v2 the cgroups are below that of the attempt. In v1 the ranks have to be moved, which can
// delay their start by 10 ms or more, so that is done only for a limit. The destructor removes the
// v1 cgroups; those of v2 are removed with the attempt's.
class RankCgroups {
 public:
  // `v1_parent` is our own cgroup in v1's memory tree, empty: there is none; `name` is unique.
  // Limit 0: none.
  RankCgroups(const std::string& v1_parent, const std::string& name, std::uint64_t limit);
  RankCgroups(const RankCgroups&) = delete;
  RankCgroups& operator=(const RankCgroups&) = delete;
  ~RankCgroups();

  // Replaces the cgroups of the last attempt. `v2_job` and, below it, `v2_attempt` are the v2
  // cgroups of the job and of the attempt, empty: none.
  void begin_attempt(const std::string& v2_job, const std::string& v2_attempt, int ranks);

  // Whether the kernel enforces the limit.
  bool limited() const { return limited_; }
  // The rank's cgroup; empty: it has none.
  const std::string& folder(int local_rank) const;
  // Of the rank; `attempt_folder` if the rank has no v2 cgroup.
  CgroupEntry entry(int local_rank, int attempt_folder) const;
  // The folder of all v1 cgroups, empty: none.
  const std::string& v1_folder() const { return v1_; }
  static void remove_v1(const std::string& folder);

 private:
  struct Rank {
    std::string folder;
    rendezvous::UniqueFd v2, v1_procs;
  };
  bool create(const std::string& folder, bool v2);

  std::string v1_;
  std::string v1_attempt_;
  std::uint64_t limit_;
  bool limited_ = false;
  int attempts_ = 0;
  std::vector<Rank> ranks_;  // by local rank; empty: no cgroups
};

}  // namespace mgpu::launcher
