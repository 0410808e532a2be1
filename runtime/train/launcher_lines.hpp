#pragma once

#include <optional>
#include <string>

namespace mgpu::train {

// Reads what the launcher sends on the worker socket, line by line. The descriptor must outlive it.
class LauncherLines {
 public:
  explicit LauncherLines(int fd) : fd_(fd) {}

  // The next line, without its end. Blocks; nothing when the launcher has closed the connection.
  std::optional<std::string> next();

 private:
  int fd_;
  std::string pending_;
};

}  // namespace mgpu::train
