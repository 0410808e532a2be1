#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace mgpu::launcher {

// What this process was given at its start and changes for itself only: workers get it back.
struct Inherited {
  rlimit nofile{};
  sigset_t mask{};
  bool sigpipe_ignored = false;
  sigset_t ignored{};  // signals that were ignored when we began; they stay so

  bool ignores(int signo) const { return sigismember(&ignored, signo) == 1; }
};

// Notes what was inherited, then takes what we need: an open stdin, stdout and stderr, as many
// descriptors as the hard limit allows, no signal blocked, SIGPIPE ignored. Called once, first
// thing in main.
Inherited take_over_process();

}  // namespace mgpu::launcher
