#include "launcher/hang_evidence/evidence_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

// 0, or errno.
int write_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

bool is_regular(int fd) {
  struct stat st{};
  return fd >= 0 && ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

}  // namespace

EvidenceFolder::EvidenceFolder(std::string path) : path_(std::move(path)) {
  if (path_.empty() || ::mkdir(path_.c_str(), 0777) == 0 || errno == EEXIST) return;
  const int error = errno;
  failed("cannot create", error);
  path_.clear();
}

void EvidenceFolder::write(const std::string& name, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (path_.empty() || !problem_.empty()) return;
  const auto file = path_ + "/" + name;
  const rendezvous::UniqueFd fd(::open(
      file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  const int error = fd ? write_text(fd.get(), text) : errno;
  if (error == 0) return;
  failed("cannot write to", error);
  if (is_regular(fd.get())) ::unlink(file.c_str());  // not one that is half written
}

std::string EvidenceFolder::path() const {
  const std::lock_guard lock(mutex_);
  return path_;
}

std::string EvidenceFolder::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void EvidenceFolder::failed(const std::string& what, int error) {
  problem_ = fmt::format("{} {}: {}; the evidence of the hang is incomplete", what,
                         rendezvous::shown(path_, 300), rendezvous::error_text(error));
}

}  // namespace mgpu::launcher
