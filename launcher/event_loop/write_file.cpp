#include "launcher/event_loop/write_file.hpp"

#include <cerrno>
#include <fstream>

namespace mgpu::launcher {

int write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text << '\n';
  if (out.flush()) return 0;
  return errno != 0 ? errno : EIO;
}

}  // namespace mgpu::launcher
