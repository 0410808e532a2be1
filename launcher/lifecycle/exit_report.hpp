#pragma once

#include <string>

#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {

// How a process exited, as reported by the kernel.
struct ExitReport {
  int code = 0;
  int signo = 0;
  bool core_dumped = false;
  int exec_error = 0;  // errno when the program could not be started

  bool clean() const { return code == 0 && signo == 0; }
  int shell_status() const { return signo != 0 ? exit_status::of_signal(signo) : code; }
  friend bool operator==(const ExitReport&, const ExitReport&) = default;
};

// Decodes a raw wait status.
ExitReport decode_wait_status(int status);

// "exited with status 3", "was killed by SIGKILL (signal 9)", "could not be started: ...".
std::string describe(const ExitReport& report);

}  // namespace mgpu::launcher
