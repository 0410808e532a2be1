#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/processes/child_process.hpp"

// Reward programs that can read files and compute, and do nothing else: recipe key reward_sandbox.
// docs/rewards.md describes the sandbox.
namespace mgpu::rewards {

// A sandbox that cannot be made. The message is one line that names the host, the step that failed
// and what to do. No program has run then.
class SandboxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct SandboxedProgram {
  std::vector<std::string> argv{};         // argv[0] is searched in PATH
  std::vector<std::string> environment{};  // NAME=VALUE, in addition to sandbox_environment()
  std::string folder{};                    // its working folder; empty: ours
  std::vector<std::string> readable{};     // files and folders that stay visible below /tmp
  int in = -1, out = -1, err = -1;         // its stdin, stdout, stderr
};

// Starts the program in a sandbox of its own, as a child of a shell that is the first process
// there. The result is the shell. Its process group is its own; when it is killed or
// exits, the kernel kills all processes of the sandbox, and waiting for it waits for them. It exits
// with the status of the program, 128 + N for signal N. It is killed when this thread ends.
// Throws SandboxError.
rendezvous::ChildProcess start_in_sandbox(const SandboxedProgram& program);

// Starts a sandbox whose program does nothing. Throws SandboxError if that fails.
void check_sandbox(const std::vector<std::string>& readable, const std::string& folder);

// Those of our variables that a sandbox gets: a list of allowed names, so that tokens and
// keys stay here.
std::vector<std::string> sandbox_environment();

// The files and folders that a program may need: those in PATH and in Python's variables, and those
// that its command line names, with their folders.
std::vector<std::string> program_paths(const std::string& command);

}  // namespace mgpu::rewards
