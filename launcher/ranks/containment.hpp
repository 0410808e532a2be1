#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/guard.hpp"
#include "launcher/ranks/rank_cgroups.hpp"
#include "launcher/ranks/spare_descriptors.hpp"

namespace mgpu::launcher {

// Ensures that no process outlives the job: adopts orphans (as a subreaper), marks every process
// with a cookie, keeps the processes in a cgroup of the job if one can be created, and has a guard
// in case this process is killed.
//
// Orphan processes, which ranks left behind, are recognized by their parent (this process), by the
// cookie, or by the job's cgroup. No other process is ever signalled. The destructor kills the
// remaining processes.
class Containment {
 public:
  // For `ranks` ranks on this node, each limited to `rank_memory` bytes where the kernel can do
  // that (0: no limit). `is_rank` returns whether a child is a rank and so not an orphan process.
  // `argv` is main's.
  Containment(int ranks, std::function<bool(pid_t)> is_rank, std::uint64_t rank_memory,
              char** argv);
  Containment(const Containment&) = delete;
  Containment& operator=(const Containment&) = delete;
  ~Containment();

  const std::string& cookie() const { return cookie_; }
  const CgroupPaths& our_cgroups() const { return paths_; }
  // The job's cgroup; empty: there is none.
  std::string cgroup() const { return cgroup_ ? cgroup_->path() : std::string(); }

  const RankCgroups& rank_cgroups() const { return *rank_cgroups_; }

  // Returns for each rank the cgroup in which it starts in this attempt.
  std::vector<CgroupEntry> begin_attempt();
  // A rank has started, and was reaped: the guard finds processes by the rank's session, too.
  void rank_started(int local_rank, pid_t pid) { sessions_.started(local_rank, pid); }
  void rank_reaped(int local_rank) { sessions_.reaped(local_rank); }
  // On SIGCHLD: reaps orphans, so that no zombies remain, and replaces a dead guard. False: another
  // guard cannot be started now; call it again later.
  bool child_changed();
  // True when there are no adopted orphan processes.
  bool empty();
  // Sends SIGTERM to each orphan process once, and SIGCONT so that suspended ones can handle it.
  void request_stop();
  void kill_all();
  // The current orphan processes, for a message.
  std::vector<pid_t> orphan_processes() const;
  // See Guard.
  void hold(int socket) { guard_->hold(socket); }
  void kill_by(std::chrono::nanoseconds when) { guard_->kill_by(when); }
  // The job is over and no process is left: dismisses the guard and removes the cgroup.
  void release();

 private:
  std::vector<pid_t> adopted_children() const;
  void reap();

  mutable SpareDescriptors spare_;
  std::function<bool(pid_t)> is_rank_;
  std::string cookie_;
  CgroupPaths paths_;
  std::optional<JobCgroup> cgroup_;
  std::unique_ptr<RankCgroups> rank_cgroups_;
  int ranks_;
  RankSessions sessions_;
  std::unique_ptr<Guard> guard_;
  std::set<pid_t> stop_requested_;
};

}  // namespace mgpu::launcher
