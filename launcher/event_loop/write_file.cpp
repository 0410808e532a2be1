#include "launcher/event_loop/write_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::UniqueFd;

// /dev/stdout may be a socket, which cannot be opened, or a file that the ranks write to.
int own_descriptor(const std::string& path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  return -1;
}

int write_to_descriptor(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    pollfd ready{fd, POLLOUT, 0};
    if (errno != EAGAIN || ::poll(&ready, 1, -1) < 0) return errno;
  }
  return 0;
}

int write_in_place(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return file ? write_to_descriptor(file.get(), text) : errno;
}

// Gives the new file the owner and the mode of the one that it replaces.
bool make_alike(int file, const struct stat& old) {
  struct stat made{};
  if (::fstat(file, &made) != 0) return false;
  const bool same_owner = made.st_uid == old.st_uid && made.st_gid == old.st_gid;
  return (same_owner || ::fchown(file, old.st_uid, old.st_gid) == 0) &&
         ::fchmod(file, old.st_mode & 07777) == 0;
}

}  // namespace

int write_file(const std::string& path, const std::string& text) {
  const auto line = text + '\n';
  if (const int fd = own_descriptor(path); fd >= 0) return write_to_descriptor(fd, line);
  struct stat st{};
  const bool exists = ::lstat(path.c_str(), &st) == 0;
  // A link, a pipe or a device stays what it is, and a file keeps its other names.
  if (exists && (!S_ISREG(st.st_mode) || st.st_nlink > 1)) return write_in_place(path, line);
  // A new file with a name that no other user of the folder can foresee.
  const auto beside = path + "." + std::to_string(std::random_device()());
  const UniqueFd file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) {
    // The file itself can be writable although its folder is not.
    const bool no_file_beside =
        errno == EACCES || errno == EPERM || errno == EROFS || errno == ENAMETOOLONG;
    return no_file_beside ? write_in_place(path, line) : errno;
  }
  const int error = write_to_descriptor(file.get(), line);
  const bool alike = !exists || make_alike(file.get(), st);
  if (error == 0 && alike && ::rename(beside.c_str(), path.c_str()) == 0) return 0;
  ::unlink(beside.c_str());
  // Some files cannot be replaced, such as one that is a mount point, or any in an object store.
  return error != 0 ? error : write_in_place(path, line);
}

}  // namespace mgpu::launcher
