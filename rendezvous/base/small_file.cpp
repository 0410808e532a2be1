#include "rendezvous/base/small_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr std::size_t kMostKernelBytes = 64 << 20;  // of tables with a line per socket or mount

using State = SmallFile::State;

SmallFile failed(int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  return {.state = absent ? State::absent : State::unreadable, .error = error, .text = {}};
}

}  // namespace

SmallFile read_small_file(const std::string& path, std::size_t limit, FileKind kind) {
  // Non-blocking: opening a pipe would wait for its writer.
  const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (kind == FileKind::regular ? O_NONBLOCK : 0);
  const UniqueFd fd(::open(path.c_str(), flags));
  if (!fd) return failed(errno);
  struct stat st{};
  if (kind == FileKind::regular) {
    if (::fstat(fd.get(), &st) != 0) return failed(errno);
    if (!S_ISREG(st.st_mode)) return {.state = State::not_regular, .text = {}};
  }
  return read_small_file(fd.get(), limit);
}

SmallFile read_small_file(int fd, std::size_t limit) {
  SmallFile file;
  char buffer[16 << 10];
  while (file.text.size() <= limit) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      file.state = State::unreadable;
      file.error = errno;
      return file;
    }
    if (n == 0) return file;
    file.text.append(buffer, static_cast<std::size_t>(n));
  }
  file.state = State::too_large;
  file.text.resize(limit);
  return file;
}

std::optional<std::string> read_kernel_file(const std::string& path) {
  auto file = read_small_file(path, kMostKernelBytes);
  return file.complete() ? std::optional(std::move(file.text)) : std::nullopt;
}

}  // namespace mgpu::rendezvous
