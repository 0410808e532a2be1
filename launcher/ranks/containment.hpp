#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/guard.hpp"

namespace mgpu::launcher {

// What holds a job's processes together, so that none of them outlives it: we adopt orphans (as a
// subreaper), mark every process with a cookie, keep them in a cgroup of the job's own where one
// can be made, and leave a guard behind should we be killed.
//
// What ranks leave behind, called leftovers, is told by its parent (us) or by the cookie. Nothing
// else is ever signalled. Its end kills what is left.
class Containment {
 public:
  // `is_rank` tells which of our children are ranks and so no leftovers. `argv` is main's.
  Containment(std::function<bool(pid_t)> is_rank, char** argv);
  Containment(const Containment&) = delete;
  Containment& operator=(const Containment&) = delete;
  ~Containment();

  const std::string& cookie() const { return cookie_; }
  const CgroupPaths& our_cgroups() const { return paths_; }
  // Of the job; empty: there is none.
  std::string cgroup() const { return cgroup_ ? cgroup_->path() : std::string(); }

  // Where the ranks of the attempt start; -1: in our own cgroup.
  int begin_attempt() {
    stop_requested_.clear();
    return cgroup_ ? cgroup_->new_attempt() : -1;
  }
  // On SIGCHLD: takes the ends of orphans, so that no zombie stays, and replaces a lost guard.
  void child_changed();
  // True when there are no leftovers.
  bool empty();
  // SIGTERM to each that has not had it yet, SIGCONT so that stopped ones can follow it.
  void request_stop();
  void kill_all();
  // Those that are there now, for a message.
  std::vector<pid_t> orphan_processes() const;
  // See Guard.
  void hold(int socket) { guard_->hold(socket); }
  void kill_by(std::chrono::nanoseconds when) { guard_->kill_by(when); }
  // The job is over and nothing is left: the guard and the cgroup go.
  void release();

 private:
  std::vector<pid_t> adopted_children() const;
  void reap();

  std::function<bool(pid_t)> is_rank_;
  std::string cookie_;
  CgroupPaths paths_;
  std::optional<JobCgroup> cgroup_;
  std::unique_ptr<Guard> guard_;
  std::set<pid_t> stop_requested_;
};

}  // namespace mgpu::launcher
