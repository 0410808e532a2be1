#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace mgpu::tests {

// A temporary folder that is removed with its contents when the test ends.
class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  explicit TempDir(const std::filesystem::path& parent) {
    std::string name = (parent / "mgpu-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp " + name);
    root_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  // A place where small files are cheap; it may be mounted noexec.
  static std::filesystem::path in_memory() {
    const char* const shared = "/dev/shm";
    return ::access(shared, W_OK) == 0 ? std::filesystem::path(shared)
                                       : std::filesystem::temp_directory_path();
  }

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

}  // namespace mgpu::tests
