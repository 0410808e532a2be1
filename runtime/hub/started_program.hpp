#pragma once

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/processes/child_process.hpp"
#include "runtime/hub/program.hpp"

namespace mgpu::hub {

// A program that runs, and the pipe from which its stdout and stderr are read.
struct StartedProgram {
  rendezvous::ChildProcess child;
  rendezvous::UniqueFd output;
};

// Starts it without input, in a process group of its own and with the default signals. Throws if it
// cannot be started.
StartedProgram start_program(const Program& program);

}  // namespace mgpu::hub
