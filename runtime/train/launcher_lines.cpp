#include "runtime/train/launcher_lines.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>

namespace mgpu::train {

std::optional<std::string> LauncherLines::next() {
  for (auto end = pending_.find('\n');; end = pending_.find('\n')) {
    if (end != pending_.npos) {
      auto line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    char bytes[512];
    const auto got = ::recv(fd_, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    pending_.append(bytes, static_cast<std::size_t>(got));
  }
}

}  // namespace mgpu::train
