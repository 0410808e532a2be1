#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/hub/program.hpp"
#include "runtime/hub/repository.hpp"

namespace mgpu::hub {

std::string shown_bytes(std::int64_t bytes);  // "15.2 GB"

struct DownloadLimits {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::chrono::milliseconds idle = std::chrono::minutes(10);    // without a new byte
  std::chrono::milliseconds report = std::chrono::seconds(10);  // between lines of progress
};

// How a run of a hub's program ended.
struct DownloadEnd {
  enum class Why { exited, deadline, idle, no_space };

  Why why = Why::exited;
  int status = 0;                          // raw wait status
  std::string output;                      // its last part
  std::int64_t new_bytes = 0;              // that are still there
  std::int64_t needed = 0, available = 0;  // bytes, with no_space
};

// Runs the program to its end, or stops it at a limit or when its files are larger than the free
// space. `say` gets lines of progress. After SIGINT, SIGTERM or SIGHUP it stops the program,
// removes its partial files, and lets the signal have its effect.
DownloadEnd run_download(const Repository& repository, const Program& program,
                         const DownloadLimits& limits,
                         const std::function<void(const std::string&)>& say);

}  // namespace mgpu::hub
