#include "launcher/lifecycle/text_lines.hpp"

namespace mgpu::launcher {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

std::string_view last_line(std::string_view text) {
  return last_lines(text, 1);
}

std::string_view last_lines(std::string_view text, std::size_t count) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  std::size_t begin = text.size();
  for (; count > 0 && begin != std::string_view::npos; --count)
    begin = begin == 0 ? std::string_view::npos : text.rfind('\n', begin - 1);
  return begin == std::string_view::npos ? text : text.substr(begin + 1);
}

}  // namespace mgpu::launcher
