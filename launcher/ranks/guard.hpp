#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/ranks/rank_sessions.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/base/unused_memory.hpp"
#include "rendezvous/processes/child_process.hpp"

namespace mgpu::launcher {

// A child process that outlives a killed launcher just long enough to kill the processes of the
// job. It runs in its own session, under another name, without stdio, and waits for the launcher's
// end of a socket pair to close. Then it kills through the cgroup (if there is one), by the ranks'
// sessions and by the job's cookie, until two scans in a row find no process, and removes the
// cgroups.
//
// In a multi-node job it has two more tasks. It holds a copy of the connection to the leader, so
// that the connection closes, and the other nodes continue, only after the last rank of this node
// is gone. And it kills the ranks at the time set by kill_by, if the launcher is alive but
// suspended.
//
// dismiss() ends it, and so does the destructor.
class Guard {
 public:
  struct Job {
    std::string cookie;
    std::vector<std::string> cgroups;        // folders, may be empty
    const RankSessions* sessions = nullptr;  // outlives the Guard
    // main's, overwritten in the guard so that it does not have the launcher's name.
    char** argv = nullptr;
  };

  static constexpr const char* kName = "mg-guard";

  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr Nanoseconds kNever = Nanoseconds::max();

  explicit Guard(Job job);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  // Keeps a copy of the socket open as long as ranks may be alive.
  void hold(int socket);
  // Sets the time, by rendezvous::BootClock, at which the guard kills the ranks. The launcher must
  // move it, or set it to kNever, before it is reached.
  void kill_by(Nanoseconds when);

  pid_t pid() const { return process_.pid(); }
  void dismiss();
  // Starts another guard if this one has died. False: that failed; call it again later.
  bool restart_if_dead();

 private:
  void start();
  void send_held_socket();

  Job job_;
  rendezvous::CodePages code_;
  std::atomic<std::int64_t>* kill_by_;  // shared with the guard
  rendezvous::ChildProcess process_;
  rendezvous::UniqueFd lifeline_;
  rendezvous::UniqueFd held_;
};

}  // namespace mgpu::launcher
