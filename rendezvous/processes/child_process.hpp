#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <optional>

#include "rendezvous/processes/spawn.hpp"

namespace mgpu::rendezvous {

// A child that leads its own process group, so that a signal also reaches the processes that it
// starts. Destroying it kills the group and reaps the child. Nothing is done to a process that is
// already reaped, because its id may belong to another one.
class ChildProcess {
 public:
  ChildProcess() = default;  // of no process
  explicit ChildProcess(Spawned child);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }          // -1: no process
  bool running() const { return running_; }   // it is not yet reaped
  int pidfd() const { return pidfd_.get(); }  // can be read when it has exited
  int release_pidfd() { return pidfd_.release(); }

  void signal_leader(int signo) const;
  void signal_group(int signo) const;

  bool has_exited() const;  // it can be reaped; until then no other group has the id of its group
  // The raw wait status of a child that has exited.
  std::optional<int> reap(rusage* usage = nullptr);
  std::optional<int> wait();  // the same; waits for the exit
  // Waits until it has exited; false: not within the limit. Needs the pidfd.
  bool wait_for_exit(std::chrono::milliseconds limit) const;

  // Kills the group and reaps the child. Returns its wait status.
  std::optional<int> kill();
  // Gives up on a process that cannot be killed, without waiting for it.
  void abandon() { running_ = false; }

 private:
  pid_t pid_ = -1;
  bool running_ = false;
  UniqueFd pidfd_;
};

}  // namespace mgpu::rendezvous
