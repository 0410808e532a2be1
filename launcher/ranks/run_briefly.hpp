#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

struct BriefRun {
  bool timed_out = false;  // it was killed at the limit
  int status = 0;          // as a shell reports it
  std::string output;      // stdout and stderr interleaved, the first 64 KiB
};

// Runs a program to its end, in the folder /, with empty stdin and without the variables of
// debuginfod, through which debuggers download symbols. Kills it and its process group when it
// takes longer than the limit. argv[0] is the file. Throws when the process cannot be created.
BriefRun run_briefly(const std::vector<std::string>& argv, const Inherited& inherited,
                     Milliseconds limit);

// Whether a thread of this process is in run_briefly for the process and will reap it.
bool runs_briefly(pid_t pid);

}  // namespace mgpu::launcher
