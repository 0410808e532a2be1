#include "rendezvous/base/worker_program.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

namespace mgpu::rendezvous {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "mgpu-train";
constexpr std::string_view kPython = "python3.";

bool is_program(const fs::path& path) {
  return ::access(path.c_str(), X_OK) == 0;
}

// The minor version of the Python that a folder such as python3.12 belongs to; -1: another folder.
int python_of(const std::string& name) {
  if (!name.starts_with(kPython)) return -1;
  const auto digits = name.substr(kPython.size());
  if (digits.empty() || digits.size() > 3 ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return -1;
  return std::stoi(digits);
}

}  // namespace

std::string worker_program(const std::string& folder, const std::string& version) {
  const auto prefix = fs::path(folder).parent_path();
  for (const char* const place : {"libexec/mgpu", "mgpu_train"})
    if (const auto program = prefix / place / kProgram; is_program(program)) return program;
  // The worker of this version first, then the newest Python.
  std::vector<std::pair<std::pair<bool, int>, std::string>> found;
  for (const char* const library : {"lib", "lib64"}) {
    std::error_code missing;
    for (const auto& python : fs::directory_iterator(prefix / library, missing)) {
      const int minor = python_of(python.path().filename());
      if (minor < 0) continue;
      for (const char* const packages : {"site-packages", "dist-packages"}) {
        const auto site = python.path() / packages;
        const auto program = site / "mgpu_train" / kProgram;
        if (!is_program(program)) continue;
        std::error_code ignored;
        const bool same = fs::exists(site / ("mgpu_train-" + version + ".dist-info"), ignored);
        found.push_back({{same, minor}, program});
      }
    }
  }
  const auto best = std::ranges::max_element(found, {}, [](const auto& one) { return one.first; });
  return best == found.end() ? std::string() : best->second;
}

}  // namespace mgpu::rendezvous
