#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/plan/binding.hpp"
#include "launcher/ranks/inherited.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// Everything a child needs, prepared before it exists: between fork and exec only
// async-signal-safe calls are made.
struct ChildSetup {
  std::vector<std::string> argv;  // argv[0] is the file that is executed
  std::vector<std::string> envp;  // NAME=value
  std::string workdir;            // empty: ours
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  BindingMask binding;
  int cgroup_fd = -1;                  // -1: our own cgroup
  volatile int* exec_error = nullptr;  // in memory shared with the child: errno if it cannot start
};

struct Spawned {
  pid_t pid = -1;
  rendezvous::UniqueFd pidfd;
};

// Starts the child in its own session; it is killed when this process dies. Returns immediately: if
// the program cannot be executed, the child exits with status 127 and sets *exec_error. Throws when
// the process cannot be created.
Spawned spawn(const ChildSetup& setup, const Inherited& inherited);

// Starts a child that runs `body` instead of another program; used for the guard.
Spawned fork_child(void (*body)(void*), void* argument);

}  // namespace mgpu::launcher
