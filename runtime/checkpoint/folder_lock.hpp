#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::checkpoint {

// The folder belongs to a process of another job; what() names both.
struct FolderInUse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How attempts of one job recognise each other.
struct LockingJob {
  std::string cookie = {};  // of its launcher: no other job has it
  std::string run_id = {};  // the same on all machines; "none": it was not given
  bool is_restart = false;  // there may be processes of an earlier attempt
};

// While it lives, no other job may write into a folder. The lock is one of the kernel on the file
// .lock in it, so it ends with its process, however that ends; the destructor removes the file. A
// process of an earlier attempt of the same job may be dying: it loses the lock after a while. A
// file system without locks, and a file of another user, lock nothing.
class FolderLock {
 public:
  struct Patience {
    std::chrono::milliseconds other_job{2000};  // which may be ending
    std::chrono::milliseconds same_job{10000};
  };

  // Throws FolderInUse.
  FolderLock(const std::string& folder, const LockingJob& job, Patience patience);
  FolderLock(const std::string& folder, const LockingJob& job)
      : FolderLock(folder, job, Patience{}) {}
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::string path_;
  rendezvous::UniqueFd fd_;  // none: nothing is locked
};

}  // namespace mgpu::checkpoint
