#include "launcher/options/options.hpp"

#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

std::string Origin::text() const {
  return name + joint + rendezvous::shown(value);
}

bool Options::is_recipe() const {
  return !module && !no_python &&
         (only_set || target.ends_with(".yaml") || target.ends_with(".yml") ||
          target.ends_with(".json"));
}

Origin Options::origin(const std::string& option, const std::string& value) const {
  const auto found = given.find(option);
  return found == given.end() ? Origin{"--" + option, " ", value} : found->second;
}

}  // namespace mgpu::launcher
