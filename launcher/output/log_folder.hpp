#pragma once

#include <optional>
#include <string>

namespace mgpu::launcher {

// Where a job's logs and error files lie: <root>/attempt_<n>/<local rank>/. Without --log-dir it
// is a temporary folder that goes away after success; /dev/null means none.
class LogFolder {
 public:
  // Makes <log_dir>/<run id>_XXXXXX, or a temporary folder. When that cannot be, path() is empty
  // and problem() says why in one line.
  LogFolder(const std::optional<std::string>& log_dir, const std::string& run_id);

  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }

  // Makes the folders of an attempt; empty when there are none. When they cannot be made,
  // problem() says why.
  std::string begin_attempt(int number, int ranks);
  // After success: a temporary folder goes, one that was asked for stays.
  void job_ended_well();

 private:
  std::string path_;
  std::string problem_;
  bool temporary_ = false;
};

}  // namespace mgpu::launcher
