#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/lifecycle/collective_state.hpp"

namespace mgpu::launcher {

// One call on the stack of a Python thread.
struct PythonFrame {
  std::string file;
  int line = 0;
  std::string function;

  friend bool operator==(const PythonFrame&, const PythonFrame&) = default;
};

// What is known about one rank of a job that hangs.
struct RankState {
  int rank = 0;
  pid_t pid = 0;
  // Of its main thread, as in /proc/PID/stat: R runs, S sleeps, D waits in the kernel and cannot be
  // interrupted, T and t are suspended, Z has exited. 0: the process no longer exists.
  char process_state = 0;
  std::string kernel_function;      // in which its main thread waits; empty: unknown
  std::vector<PythonFrame> python;  // of its main thread, the innermost call first
  std::vector<std::string> native;  // functions of its main thread, the innermost call first
  std::optional<CollectiveState> collective;
};

}  // namespace mgpu::launcher
