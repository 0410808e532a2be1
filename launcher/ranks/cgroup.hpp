#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// The cgroups of this process. Empty: there is no such tree.
struct CgroupPaths {
  std::string v2;         // folder in the v2 tree (also on hybrid hosts)
  std::string v1_memory;  // folder in the memory tree of v1
};

// From the texts of /proc/self/cgroup and /proc/self/mountinfo; pure.
CgroupPaths find_cgroups(const std::string& self_cgroup, const std::string& mountinfo);
CgroupPaths find_own_cgroups();

// The job's own v2 cgroup below ours, with a child cgroup for each attempt in which the ranks
// start: a kernel may kill every process that is started in a cgroup that was killed before
// (Linux 6.18 does). The destructor kills the remaining processes and removes the folder.
class JobCgroup {
 public:
  // Nullopt when creating one is not permitted or the kernel has no cgroup.kill.
  static std::optional<JobCgroup> create(const std::string& parent, const std::string& name);
  JobCgroup(JobCgroup&&) = default;
  JobCgroup& operator=(JobCgroup&&) = default;
  ~JobCgroup();

  const std::string& path() const { return path_; }
  // Replaces the cgroup of the last attempt by a new one and returns its descriptor; -1: failed.
  int new_attempt();
  const std::string& attempt_path() const { return attempt_path_; }
  bool empty() const;
  void kill() const { kill_cgroup(path_); }

  static void kill_cgroup(const std::string& path);
  // Removes the folder and the folders that workers created below it.
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
