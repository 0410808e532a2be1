#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::hub {

// One process at a time, of all nodes that share a cache, downloads a repository into it. The file
// says who, until the download is complete: if nobody holds the lock of such a file, the download
// was interrupted. Other programs ignore it; hf has locks of its own for each file.
class DownloadLock {
 public:
  using Clock = std::chrono::steady_clock;

  // Waits for the lock, and calls `on_wait` with the owner if that takes longer than a second.
  // Throws std::runtime_error at the deadline. Where a file cannot be created or locked, such as in
  // a cache that cannot be written, there is no lock.
  DownloadLock(const std::string& path, std::optional<Clock::time_point> deadline,
               const std::function<void(const std::string& owner)>& on_wait);

  void begin();     // writes who downloads
  void complete();  // empties the file

 private:
  rendezvous::UniqueFd fd_;
};

// Whether the file of a lock names somebody: a download has not been completed, by a process that
// still runs or was interrupted.
bool is_incomplete(const std::string& lock_path);

}  // namespace mgpu::hub
