#include "launcher/event_loop/write_file.hpp"

#include <fstream>

namespace mgpu::launcher {

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text << '\n';
  return static_cast<bool>(out.flush());
}

}  // namespace mgpu::launcher
