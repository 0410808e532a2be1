#pragma once

#include <string>

#include "launcher/lifecycle/signal.hpp"

namespace mgpu::launcher {

// How a process exited, as reported by the kernel.
struct ExitReport {
  int code = 0;
  Signal signal;  // that killed it
  bool core_dumped = false;
  int exec_error = 0;  // errno when the program could not be started

  bool clean() const { return code == 0 && !signal; }
  int shell_status() const { return signal ? signal.shell_status() : code; }
  friend bool operator==(const ExitReport&, const ExitReport&) = default;
};

// Decodes a raw wait status.
ExitReport decode_wait_status(int status);

// "exited with status 3", "was killed by SIGKILL (signal 9)", "could not be started: ...".
std::string describe(const ExitReport& report);

}  // namespace mgpu::launcher
