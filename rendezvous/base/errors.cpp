#include "rendezvous/base/errors.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace mgpu::rendezvous {

std::string error_text(int error) {
  char buffer[128];
  return ::strerror_r(error, buffer, sizeof buffer);  // the GNU version: may return another buffer
}

void throw_errno(const std::string& what, int error) {
  throw std::system_error(error, std::generic_category(), what);
}

void throw_errno(const std::string& what) {
  throw_errno(what, errno);
}

}  // namespace mgpu::rendezvous
