#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "launcher/lifecycle/signal.hpp"

namespace mgpu::launcher {

// Settings that this process inherited and changes only for itself: workers get the originals.
struct Inherited {
  rlimit nofile{};
  sigset_t mask{};
  bool sigpipe_ignored = false;
  sigset_t ignored{};  // signals that were ignored at the start; they stay ignored

  bool ignores(Signal signal) const { return sigismember(&ignored, signal.number()) == 1; }
};

// Records the inherited settings, then changes them: stdin, stdout and stderr are open, the limit
// of descriptors is the hard limit, no signal is blocked, SIGPIPE is ignored. Must be called once,
// at the beginning of main.
Inherited record_and_adjust_process();

}  // namespace mgpu::launcher
