#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// A child that outlives a killed launcher just long enough to end what the job left. It sits in
// a session of its own, under another name, without stdio, and waits for the launcher's end of a
// pipe to close. Then it kills through the cgroup (if there is one) and by the job's cookie until
// two scans in a row are empty, and removes the cgroup.
//
// In a job over several nodes it does two things more. It holds a copy of the connection to the
// leader, so that this closes, and the others go on, no sooner than the last of our ranks is gone.
// And it kills the ranks at the time told by kill_by, should the launcher be alive but stopped.
//
// The launcher's own clean end dismisses it; so does its destructor.
class Guard {
 public:
  struct Job {
    std::string cookie;
    std::string cgroup;     // folder, may be empty
    char** argv = nullptr;  // main's, overwritten in the guard so that it is not found by our name
  };

  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr Nanoseconds kNever = Nanoseconds::max();

  explicit Guard(Job job);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  // Keeps a copy of the socket open as long as there may be ranks.
  void hold(int socket);
  // Of the steady clock; to be moved on, or set to kNever, before it comes.
  void kill_by(Nanoseconds when);

  pid_t pid() const { return pid_; }
  void dismiss();
  // Starts another one when this has died; true if it had.
  bool restart_if_dead();

 private:
  void start();
  void send_held_socket();

  Job job_;
  std::atomic<std::int64_t>* kill_by_;  // shared with the guard
  pid_t pid_ = -1;
  rendezvous::UniqueFd pidfd_;
  rendezvous::UniqueFd lifeline_;
  rendezvous::UniqueFd held_;
};

}  // namespace mgpu::launcher
