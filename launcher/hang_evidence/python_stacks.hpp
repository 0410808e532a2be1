#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/hang_evidence/rank_state.hpp"

namespace mgpu::launcher {

struct PythonThread {
  pid_t id = 0;
  std::vector<PythonFrame> frames;  // the innermost call first
};

struct PythonStacks {
  std::vector<PythonThread> threads;  // empty: the process does not run Python, or see `problem`
  std::string problem;                // why the stacks cannot be read; empty: they could be
};

// The stacks of all Python threads of a process that runs CPython 3.11 or later. Reads them from
// the memory of the process, which is neither stopped nor changed, so it works without a debugger
// and whatever the process waits for. Does not throw.
PythonStacks read_python_stacks(pid_t pid);

}  // namespace mgpu::launcher
