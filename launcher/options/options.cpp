#include "launcher/options/options.hpp"

#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

std::string Origin::text() const {
  return name + joint + rendezvous::shown(value);
}

Origin Options::origin(const std::string& option, const std::string& value) const {
  const auto found = given.find(option);
  return found == given.end() ? Origin{"--" + option, " ", value} : found->second;
}

}  // namespace mgpu::launcher
