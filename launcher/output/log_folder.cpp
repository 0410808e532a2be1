#include "launcher/output/log_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {
namespace fs = std::filesystem;

namespace {

// Empty if it cannot be created, or if there can be no pipes in it.
std::string create_nccl_folder(const std::string& parent) {
  auto folder = parent + "/nccl";
  const auto probe = folder + "/probe.pipe";
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return {};
  if (::mkfifo(probe.c_str(), 0600) == 0) {
    ::unlink(probe.c_str());
    return folder;
  }
  ::rmdir(folder.c_str());
  return {};
}

}  // namespace

LogFolder::LogFolder(const std::optional<std::string>& log_dir, const std::string& run_id) {
  if (log_dir == "/dev/null") return;
  temporary_ = !log_dir;
  std::error_code failed;
  const fs::path root = log_dir ? fs::absolute(*log_dir, failed) : fs::temp_directory_path(failed);
  if (!failed && log_dir) fs::create_directories(root, failed);
  std::string name = (root / (temporary_ ? "mgpu_XXXXXX" : run_id + "_XXXXXX")).string();
  if (!failed && ::mkdtemp(name.data())) {
    path_ = name;
    return;
  }
  const auto why = failed ? failed.message() : rendezvous::error_text(errno);
  problem_ = fmt::format(
      "cannot create a log folder in {}: {}; the job continues without logs and "
      "error files; choose another folder with --log-dir",
      rendezvous::shown(root.string(), 300), why);
}

std::function<LogFolder::AttemptFolder()> LogFolder::begin_attempt(int number, int ranks,
                                                                   bool nccl) const {
  if (path_.empty()) return [] { return AttemptFolder{}; };
  return [folder = fmt::format("{}/attempt_{}", path_, number), ranks, nccl]() -> AttemptFolder {
    ::mkdir(folder.c_str(), 0777);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto own = fmt::format("{}/{}", folder, rank);
      if (::mkdir(own.c_str(), 0777) == 0 || errno == EEXIST) continue;
      const int error = errno;
      return {{},
              fmt::format("cannot create {}/{}: {}; this attempt has no logs",
                          rendezvous::shown(folder, 300), rank, rendezvous::error_text(error)),
              {}};
    }
    return {folder, {}, nccl ? create_nccl_folder(folder) : std::string()};
  };
}

std::function<void()> LogFolder::job_succeeded() const {
  return [folder = temporary_ ? path_ : std::string()] {
    std::error_code ignored;
    if (!folder.empty()) fs::remove_all(folder, ignored);
  };
}

}  // namespace mgpu::launcher
