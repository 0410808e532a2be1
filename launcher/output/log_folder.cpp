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

constexpr const char* kTemporary = "/tmp";

// Creates <root>/<name>_XXXXXX, and before it the root if `with_root`. Empty if that fails, with
// the reason in `why`.
std::string create_folder(const std::string& root, const std::string& name, bool with_root,
                          std::string& why) {
  std::error_code failed;
  const auto parent = fs::absolute(root, failed);
  if (!failed && with_root) fs::create_directories(parent, failed);
  std::string path = (parent / (name + "_XXXXXX")).string();
  if (!failed && ::mkdtemp(path.data())) return path;
  why = failed ? failed.message() : rendezvous::error_text(errno);
  return {};
}

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
  const char* tmpdir = std::getenv("TMPDIR");
  const bool chosen = temporary_ && tmpdir && *tmpdir;
  const std::string root = log_dir ? *log_dir : chosen ? tmpdir : kTemporary;
  std::string why;
  path_ = create_folder(root, temporary_ ? "mgpu" : run_id, !temporary_, why);
  if (!path_.empty()) return;
  const auto place = (chosen ? "TMPDIR=" : "") + rendezvous::shown(root, 300);
  problem_ = fmt::format("cannot create a log folder in {}: {}; ", place, why);
  if (chosen) path_ = create_folder(kTemporary, "mgpu", false, why);
  problem_ += path_.empty() ? "the job continues without logs and error files; choose another "
                              "folder with --log-dir"
                            : fmt::format("it is in {}", kTemporary);
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
