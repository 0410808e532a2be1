#pragma once

#include <string>
#include <vector>

#include "launcher/lifecycle/oom_record.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// Searches the kernel's log for errors of GPUs (Xids of the driver) and OOM kills. It never blocks.
// Usually only root may read the log; for others nothing is ever found.
class KernelLog {
 public:
  // `path` is a file with one record per line, in the format of /dev/kmsg.
  explicit KernelLog(const std::string& path = "/dev/kmsg");

  // Ignores everything that was logged before.
  void begin_attempt();
  // The first record since then that reports a GPU fault (see reports_gpu_fault); empty: none.
  std::string gpu_fault();
  // The OOM kills since then, at most some hundred.
  const std::vector<OomRecord>& oom_kills();

 private:
  void read();

  rendezvous::UniqueFd log_;
  std::string gpu_fault_;
  std::vector<OomRecord> oom_kills_;
  OomRecord place_;  // the cgroup of the process that is killed next
};

}  // namespace mgpu::launcher
