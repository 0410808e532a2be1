#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace mgpu::launcher {

// What the kernel tells about a process and its threads.
struct ProcessSnapshot {
  char state = 0;               // of its main thread, see RankState; 0: the process is gone
  std::string kernel_function;  // in which its main thread waits; empty: it does not, or unknown
  std::string text;             // all of it, several lines
};

// Reads the files of /proc: stat, status and, for each thread, state, wchan, syscall and, where
// that is allowed, the kernel's stack.
ProcessSnapshot snapshot_of(pid_t pid);

// The process and all its descendants, the process first.
std::vector<pid_t> process_and_descendants(pid_t pid);

// The state in the text of /proc/PID/stat, 0 if there is none; pure.
char state_in(const std::string& stat);

}  // namespace mgpu::launcher
