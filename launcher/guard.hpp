#pragma once

#include <sys/types.h>

#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// A child that outlives a killed launcher just long enough to end what the job left. It sits in
// a session of its own, under another name, without stdio, and waits for the launcher's end of a
// pipe to close. Then it kills through the cgroup (if there is one) and by the job's cookie until
// two scans in a row are empty, and removes the cgroup.
//
// The launcher's own clean end dismisses it; so does its destructor.
class Guard {
 public:
  struct Job {
    std::string cookie;
    std::string cgroup;     // folder, may be empty
    char** argv = nullptr;  // main's, overwritten in the guard so that it is not found by our name
  };

  explicit Guard(Job job);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { dismiss(); }

  pid_t pid() const { return pid_; }
  void dismiss();
  // Starts another one when this has died; true if it had.
  bool revive();

 private:
  void start();

  Job job_;
  pid_t pid_ = -1;
  rendezvous::UniqueFd pidfd_;
  rendezvous::UniqueFd lifeline_;
};

}  // namespace mgpu::launcher
