#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// Where this process sits in the cgroup trees. Empty: there is no such tree.
struct CgroupPaths {
  std::string v2;         // folder of our cgroup in the v2 tree (also that of hybrid hosts)
  std::string v1_memory;  // and in v1's memory tree
};

// From the texts of /proc/self/cgroup and /proc/self/mountinfo; pure.
CgroupPaths find_cgroups(const std::string& self_cgroup, const std::string& mountinfo);
CgroupPaths find_own_cgroups();

// A v2 cgroup of the job's own below ours, with a room in it for each attempt, in which ranks
// start: a kernel may kill whatever is started in a cgroup that has once been killed (Linux 6.18
// does). Ending it kills whatever is left in it and removes the folder.
class JobCgroup {
 public:
  // Nothing where we may not make one or the kernel has no cgroup.kill.
  static std::optional<JobCgroup> create(const std::string& parent, const std::string& name);
  JobCgroup(JobCgroup&&) = default;
  JobCgroup& operator=(JobCgroup&&) = default;
  ~JobCgroup();

  const std::string& path() const { return path_; }
  // A new room in the place of the last one; -1: none can be made.
  int new_attempt();
  bool empty() const;
  void kill() const { kill_cgroup(path_); }

  static void kill_cgroup(const std::string& path);
  // Removes the folder and those that workers made below it.
  static void remove_cgroup(const std::string& path);

 private:
  explicit JobCgroup(std::string path, rendezvous::UniqueFd folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  std::string path_;
  rendezvous::UniqueFd folder_;
  std::string attempt_path_;
  rendezvous::UniqueFd attempt_folder_;
  int attempts_ = 0;
};

}  // namespace mgpu::launcher
