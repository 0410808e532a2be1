#include "rendezvous/base/passing_error.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace mgpu::rendezvous {

bool is_passing(const std::exception& error) {
  const auto* const failure = dynamic_cast<const std::system_error*>(&error);
  if (failure == nullptr) return false;
  const int mistakes[] = {ENOENT, ENOTDIR, EACCES, EISDIR, ELOOP, ENAMETOOLONG};
  return std::ranges::find(mistakes, failure->code().value()) == std::end(mistakes);
}

}  // namespace mgpu::rendezvous
