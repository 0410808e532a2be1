// A library to preload: like a file system whose server does not respond. While the file STALL
// exists, operations on files below the folder STALLED_FOLDER do not return. Each operation that
// waits adds a line to STALL.seen.
//
// A name server can stall in the same way: the name "stalled.example" has the address
// STALLED_ADDRESS, and all look-ups but the first do not return while STALL exists.
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void note(const std::string& path, const char* what) {
  static auto* const open_file = real<int(const char*, int, ...)>("open");
  static auto* const write_file = real<ssize_t(int, const void*, size_t)>("write");
  const int fd = open_file(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const std::string line = std::string(what) + "\n";
  if (fd >= 0 && write_file(fd, line.data(), line.size()) >= 0) ::close(fd);
}

void wait_for_end(const char* what) {
  const char* const stall = std::getenv("STALL");
  if (!stall || ::access(stall, F_OK) != 0) return;
  note(std::string(stall) + ".seen", what);
  const timespec pause{0, 5'000'000};
  while (::access(stall, F_OK) == 0) ::nanosleep(&pause, nullptr);
}

void wait_for_path(const char* path, const char* what) {
  const char* const folder = std::getenv("STALLED_FOLDER");
  if (path && folder && std::strncmp(path, folder, std::strlen(folder)) == 0) wait_for_end(what);
}

void wait_for_fd(int fd, const char* what) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (::readlink(link.c_str(), path, sizeof path - 1) > 0) wait_for_path(path, what);
}

mode_t mode_of(int flags, std::va_list list) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t count) {
  wait_for_fd(fd, "write");
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
  return call(fd, bytes, count);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  wait_for_fd(fd, "writev");
  static auto* const call = real<ssize_t(int, const iovec*, int)>("writev");
  return call(fd, parts, count);
}

int open(const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  wait_for_path(path, "open");
  static auto* const call = real<int(const char*, int, ...)>("open");
  return call(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  wait_for_path(path, "open");
  static auto* const call = real<int(const char*, int, ...)>("open64");
  return call(path, flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  wait_for_path(path, "fopen");
  static auto* const call = real<FILE*(const char*, const char*)>("fopen64");
  return call(path, mode);
}

FILE* fopen(const char* path, const char* mode) {
  wait_for_path(path, "fopen");
  static auto* const call = real<FILE*(const char*, const char*)>("fopen");
  return call(path, mode);
}

int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  static auto* const call =
      real<int(const char*, const char*, const addrinfo*, addrinfo**)>("getaddrinfo");
  static std::atomic<int> look_ups = 0;
  if (node && std::strcmp(node, "stalled.example") == 0) {
    if (++look_ups > 1) wait_for_end("getaddrinfo");
    node = std::getenv("STALLED_ADDRESS");
  }
  return call(node, service, hints, found);
}

int mkdir(const char* path, mode_t mode) noexcept {
  wait_for_path(path, "mkdir");
  static auto* const call = real<int(const char*, mode_t)>("mkdir");
  return call(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  wait_for_path(to, "rename");
  static auto* const call = real<int(const char*, const char*)>("rename");
  return call(from, to);
}

int unlink(const char* path) noexcept {
  wait_for_path(path, "unlink");
  static auto* const call = real<int(const char*)>("unlink");
  return call(path);
}

}  // extern "C"
