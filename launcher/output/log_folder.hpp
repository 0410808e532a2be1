#pragma once

#include <functional>
#include <optional>
#include <string>

namespace mgpu::launcher {

// The folder of a job's logs and error files: <root>/attempt_<n>/<local rank>/. Without --log-dir
// it is a temporary folder in TMPDIR or else /tmp, removed after success; /dev/null means no
// folder.
class LogFolder {
 public:
  // Creates <log_dir>/<run id>_XXXXXX, or a temporary folder. On failure path() is empty. problem()
  // gives the reason in one line, also if the folder is in /tmp because TMPDIR cannot be used.
  LogFolder(const std::optional<std::string>& log_dir, const std::string& run_id);

  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }

  // The folder of an attempt, and why it could not be created, in one line.
  struct AttemptFolder {
    std::string path;  // empty: there is none
    std::string problem;
    std::string nccl;  // the folder in it for PyTorch's records of NCCL; empty: there is none
  };
  // The two calls below return work for a FileThread, because it may block.
  //
  // Creates the folders of an attempt. With `nccl` also the one for PyTorch's records of NCCL, if
  // the file system has pipes: PyTorch ends a process that cannot create its pipe there.
  std::function<AttemptFolder()> begin_attempt(int number, int ranks, bool nccl) const;
  // After success: removes a temporary folder and keeps one that was given.
  std::function<void()> job_succeeded() const;

 private:
  std::string path_;
  std::string problem_;
  bool temporary_ = false;
};

}  // namespace mgpu::launcher
