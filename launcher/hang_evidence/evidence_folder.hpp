#pragma once

#include <mutex>
#include <string>
#include <string_view>

namespace mgpu::launcher {

// The folder with the evidence of a hang. After a failed write, such as on a full disk, nothing
// more is written. May be used by several threads.
class EvidenceFolder {
 public:
  // Creates the folder; empty: nothing is written.
  explicit EvidenceFolder(std::string path);

  void write(const std::string& name, std::string_view text);

  // Empty if there is none.
  std::string path() const;
  // Why something was not written, in one line; empty: everything was.
  std::string problem() const;

 private:
  void failed(const std::string& what, int error);

  mutable std::mutex mutex_;
  std::string path_;
  std::string problem_;
};

}  // namespace mgpu::launcher
