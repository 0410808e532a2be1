#include "runtime/telemetry/output_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"

namespace mgpu::telemetry {
namespace {

using rendezvous::error_text;

// Blocks SIGPIPE in this thread while it lives, without changing the process's handler.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    const int error = errno;
    const timespec now{};
    if (!was_pending_)
      while (::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

bool wait_until_writable(int fd) {
  pollfd one{fd, POLLOUT, 0};
  return ::poll(&one, 1, 1000) == 1 && (one.revents & POLLOUT);
}

}  // namespace

bool write_all(int fd, std::string_view bytes) {
  const NoSigpipe quiet;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n > 0)
      bytes.remove_prefix(static_cast<std::size_t>(n));
    else if (n < 0 && errno == EINTR)
      continue;
    else if (n < 0 && errno == EAGAIN && wait_until_writable(fd))
      continue;
    else
      return false;
  }
  return true;
}

OutputFile::OutputFile(std::string path, const ErrorCallback& on_error, std::int64_t keep)
    : path_(std::move(path)), on_error_(on_error) {
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd_) {
    report_once("open", errno);
    return;
  }
  if (keep >= 0 && ::ftruncate(fd_.get(), keep) != 0) report_once("truncate", errno);
  struct stat now{};
  if (::fstat(fd_.get(), &now) == 0) size_ = now.st_size;
}

void OutputFile::append(std::string_view record) {
  if (!fd_) return;
  if (write_all(fd_.get(), record)) {
    size_ += static_cast<std::int64_t>(record.size());
    return;
  }
  const int error = errno;
  // Remove the part that was written. A device cannot be truncated, but has no file to damage.
  if (::ftruncate(fd_.get(), size_) != 0) errno = 0;
  report_once("write", error);
}

void OutputFile::report_once(const std::string& what, int error) {
  if (std::exchange(reported_, true) || !on_error_) return;
  on_error_(fmt::format("cannot {} {}: {}; training continues without it", what, path_,
                        error_text(error)));
}

void replace_file(const std::string& path, std::string_view text, const ErrorCallback& on_error) {
  const auto part = path + ".part";
  rendezvous::UniqueFd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  bool good = fd && write_all(fd.get(), text);
  int error = errno;
  if (good && ::rename(part.c_str(), path.c_str()) != 0) {
    error = errno;
    good = false;
  }
  if (good) return;
  if (fd) ::unlink(part.c_str());
  on_error(fmt::format("cannot write {}: {}", path, error_text(error)));
}

void make_folder(const std::string& path, const ErrorCallback& on_error) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (error) on_error(fmt::format("cannot create the folder {}: {}", path, error.message()));
}

}  // namespace mgpu::telemetry
