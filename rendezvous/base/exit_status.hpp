#pragma once

// The exit statuses of mgpu-run and mgpu-train. Scripts test them: docs/launcher.md lists them.
namespace mgpu::exit_status {

inline constexpr int kFailure = 1;            // a failure of our own
inline constexpr int kUsage = 2;              // a mistake on the command line or in a recipe
inline constexpr int kRendezvousFailed = 75;  // the nodes could not form or keep a job
inline constexpr int kCannotEnter = 126;      // a host lacks the working directory
inline constexpr int kCannotExecute = 127;    // the program could not be executed
inline constexpr int kLargest = 255;          // of any process

// The status that a shell reports for a process that a signal has killed.
constexpr int of_signal(int signo) {
  return 128 + signo;
}

}  // namespace mgpu::exit_status
