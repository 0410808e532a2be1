#include "launcher/options/saved_file.hpp"

#include <sys/stat.h>

#include <filesystem>

#include <fmt/format.h>

#include "launcher/options/options.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 8;  // from /dev/stdin there are two

// Whether the path is a link in the folder of this process' descriptors, or leads to one. The ranks
// have other descriptors, except for the stdin of rank 0.
bool is_descriptor(fs::path path) {
  std::error_code failed;
  const auto own = fs::canonical("/proc/self", failed).string() + "/";
  if (failed) return false;
  for (int links = 0; links < kMostLinks; ++links) {
    const auto target = fs::read_symlink(path, failed);
    if (failed) return false;
    const auto folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", failed);
    if (failed) return false;
    if (folder.filename() == "fd" && folder.string().starts_with(own)) return true;
    path = folder / target;  // an absolute target replaces the folder
  }
  return false;
}

}  // namespace

void require_saved_file(const std::string& target) {
  struct stat st{};
  if (::stat(target.c_str(), &st) != 0) return;
  const bool saved = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
  if (saved && !is_descriptor(target)) return;
  throw UsageError(
      fmt::format("cannot run {}: every rank must read it from the beginning, and {}; save it to a "
                  "file and run that",
                  rendezvous::shown(target, 300),
                  saved ? "it is a descriptor of mgpu-run, which the ranks do not share"
                        : "it is not a regular file"));
}

}  // namespace mgpu::launcher
