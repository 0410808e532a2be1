#include "launcher/options/options.hpp"

#include <string_view>

#include "launcher/options/hide_passwords.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

std::string Origin::text() const {
  return name + joint + rendezvous::shown(hide_passwords(value));
}

bool Options::is_recipe() const {
  return !module && !no_python &&
         (only_set || target.ends_with(".yaml") || target.ends_with(".yml") ||
          target.ends_with(".json"));
}

std::string Options::log_folder_name() const {
  constexpr std::size_t kLongest = 100;  // a file system allows 255, with the random end
  constexpr std::string_view kKept =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  auto name = rdzv_id.substr(0, kLongest);
  for (char& c : name)
    if (kKept.find(c) == kKept.npos) c = '_';
  for (char& c : name) {
    if (c != '.') break;
    c = '_';
  }
  return name;
}

Origin Options::origin(const std::string& option, const std::string& value) const {
  const auto found = given.find(option);
  return found == given.end() ? Origin{"--" + option, " ", value} : found->second;
}

}  // namespace mgpu::launcher
