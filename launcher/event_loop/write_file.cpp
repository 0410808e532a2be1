#include "launcher/event_loop/write_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

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

}  // namespace

int write_file(const std::string& path, const std::string& text) {
  struct stat st{};
  const bool exists = ::lstat(path.c_str(), &st) == 0;
  // A link, a pipe or /dev/stdout stays what it is.
  if (exists && !S_ISREG(st.st_mode)) return write_in_place(path, text);
  const auto beside = fmt::format("{}.{}", path, ::getpid());
  int error = write_in_place(beside, text);
  if (error == 0 && exists && ::chmod(beside.c_str(), st.st_mode & 07777) != 0) error = errno;
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) == 0) return 0;
  if (error == 0) error = errno;
  ::unlink(beside.c_str());
  // The file itself can be writable although its folder is not.
  const bool no_file_beside =
      error == EACCES || error == EPERM || error == EROFS || error == ENAMETOOLONG;
  return no_file_beside ? write_in_place(path, text) : error;
}

}  // namespace mgpu::launcher
