#include "launcher/event_loop/write_file.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

int write_in_place(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text << '\n';
  if (out.flush()) return 0;
  return errno != 0 ? errno : EIO;
}

// /dev/stdout may be a socket, which cannot be opened, or a file that the ranks write to.
int own_descriptor(const std::string& path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  return -1;
}

int write_to_descriptor(int fd, const std::string& text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t n = ::write(fd, left.data(), left.size());
    if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    pollfd ready{fd, POLLOUT, 0};
    if (errno != EAGAIN || ::poll(&ready, 1, -1) < 0) return errno;
  }
  return 0;
}

// Gives the new file the owner and the mode of the one that it replaces.
bool make_alike(const std::string& path, const struct stat& old) {
  struct stat made{};
  if (::stat(path.c_str(), &made) != 0) return false;
  const bool same_owner = made.st_uid == old.st_uid && made.st_gid == old.st_gid;
  return (same_owner || ::chown(path.c_str(), old.st_uid, old.st_gid) == 0) &&
         ::chmod(path.c_str(), old.st_mode & 07777) == 0;
}

}  // namespace

int write_file(const std::string& path, const std::string& text) {
  if (const int fd = own_descriptor(path); fd >= 0) return write_to_descriptor(fd, text + '\n');
  struct stat st{};
  const bool exists = ::lstat(path.c_str(), &st) == 0;
  // A link, a pipe or a device stays what it is, and a file keeps its other names.
  if (exists && (!S_ISREG(st.st_mode) || st.st_nlink > 1)) return write_in_place(path, text);
  const auto beside = fmt::format("{}.{}", path, ::getpid());
  if (const int error = write_in_place(beside, text); error != 0) {
    ::unlink(beside.c_str());
    // The file itself can be writable although its folder is not.
    const bool no_file_beside =
        error == EACCES || error == EPERM || error == EROFS || error == ENAMETOOLONG;
    return no_file_beside ? write_in_place(path, text) : error;
  }
  if ((!exists || make_alike(beside, st)) && ::rename(beside.c_str(), path.c_str()) == 0) return 0;
  // Some files cannot be replaced, such as one that is a mount point, or any in an object store.
  ::unlink(beside.c_str());
  return write_in_place(path, text);
}

}  // namespace mgpu::launcher
