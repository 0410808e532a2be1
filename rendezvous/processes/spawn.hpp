#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"

// The only functions of both programs that start processes. docs/decisions/0001-own-spawn.md says
// why they are our own.
namespace mgpu::rendezvous {

// Something that a child does before it executes its program. It may make async-signal-safe calls
// only. `run` returns 0, or the errno with which the child gives up.
struct ChildStep {
  int (*run)(const void* argument) = nullptr;
  const void* argument = nullptr;
};

// Everything that a child needs. It is complete before the child exists: afterwards no memory may
// be allocated, because another thread may have held the allocator's lock.
struct ChildSetup {
  enum class Leads { session, group };

  std::vector<std::string> argv;  // argv[0] is the file that is executed
  std::vector<std::string> envp;  // NAME=value
  std::string workdir;            // empty: ours
  int stdin_fd = -1;              // -1: ours
  int stdout_fd = -1;
  int stderr_fd = -1;
  Leads leads = Leads::session;  // of its own
  bool search_path = false;      // find argv[0] as execvp does
  bool only_stdio = false;       // no other descriptor, even without O_CLOEXEC
  sigset_t blocked{};            // its signal mask
  sigset_t stay_ignored{};       // of the signals that we ignore; all others get their default
  ChildStep last_step{};
  int cgroup_fd = -1;                  // -1: our own cgroup; only for spawn()
  volatile int* exec_error = nullptr;  // in memory shared with the child; only for spawn()
};

struct Spawned {
  pid_t pid = -1;
  UniqueFd pidfd;
};

// Starts a child that is killed when the calling thread ends. Returns immediately: if the program
// cannot be executed, the child exits with status 127 and sets *exec_error to errno. Throws when
// the process cannot be created.
Spawned spawn(const ChildSetup& setup);

// The same, but returns when the child runs its program, and shares our memory with the child until
// then: no page tables are copied, however large this process is. Throws with the path and the
// reason if the program cannot be executed; no process is left then.
Spawned spawn_and_confirm(const ChildSetup& setup);

// Starts a copy of this process that runs `body` instead of another program, with all signals
// blocked, in new namespaces of these kinds (CLONE_NEWUSER and so on). Throws std::system_error.
Spawned fork_child(void (*body)(void*), void* argument, int namespaces = 0);

}  // namespace mgpu::rendezvous
