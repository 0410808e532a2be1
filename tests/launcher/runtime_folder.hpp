#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace mgpu::tests {

// A separate runtime folder for the duration of the test.
class RuntimeFolder {
 public:
  RuntimeFolder() {
    if (const char* before = std::getenv("XDG_RUNTIME_DIR")) before_ = before;
    ::setenv("XDG_RUNTIME_DIR", folder_.root().c_str(), 1);
  }
  ~RuntimeFolder() {
    if (before_)
      ::setenv("XDG_RUNTIME_DIR", before_->c_str(), 1);
    else
      ::unsetenv("XDG_RUNTIME_DIR");
  }
  RuntimeFolder(const RuntimeFolder&) = delete;
  RuntimeFolder& operator=(const RuntimeFolder&) = delete;

  std::string ours() const { return folder_.path("mgpu-run"); }
  std::string only_file() const {
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(ours())) {
      REQUIRE(found.empty());
      found = entry.path();
    }
    return found;
  }

 private:
  TempDir folder_;
  std::optional<std::string> before_;
};

}  // namespace mgpu::tests
