#include "launcher/options/hide_passwords.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::string_view kHidden = "...";

// The position after the first `password =`; npos: there is none.
std::size_t after_password_key(std::string_view text) {
  constexpr std::string_view kKey = "password";
  for (auto at = text.find(kKey); at != text.npos; at = text.find(kKey, at + 1)) {
    const auto equals = text.find_first_not_of(" \t\r\n", at + kKey.size());
    if (equals != text.npos && text[equals] == '=') return equals + 1;
  }
  return text.npos;
}

}  // namespace

std::string hide_passwords(std::string_view text) {
  constexpr std::string_view kScheme = "://";
  std::string end;
  if (const auto at = after_password_key(text); at != text.npos && at < text.size()) {
    text = text.substr(0, at);
    end = kHidden;
  }
  std::string out;
  while (!text.empty()) {  // a password can contain commas and slashes: up to the last @ of a URL
    const auto scheme = text.find(kScheme);
    const auto size = scheme == text.npos ? text.size() : scheme + kScheme.size();
    const auto url = text.substr(0, size);
    const auto colon = url.find(':');
    const auto at = url.rfind('@');
    if (at != url.npos && colon < at) {
      out += url.substr(0, colon + 1);
      out += kHidden;
      out += url.substr(at);
    } else {
      out += url;
    }
    text.remove_prefix(size);
  }
  return out + end;
}

}  // namespace mgpu::launcher
