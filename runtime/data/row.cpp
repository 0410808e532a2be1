#include "runtime/data/row.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace mgpu::data {

std::size_t character_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char head = at(0);
  const std::size_t length = head < 0x80   ? 1
                             : head < 0xC2 ? 0
                             : head < 0xE0 ? 2
                             : head < 0xF0 ? 3
                             : head < 0xF5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  if ((head == 0xE0 && at(1) < 0xA0) || (head == 0xED && at(1) > 0x9F)) return 0;
  if ((head == 0xF0 && at(1) < 0x90) || (head == 0xF4 && at(1) > 0x8F)) return 0;
  return length;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) return out + "...";
    const std::size_t length = character_length(text);
    const auto head = static_cast<unsigned char>(text[0]);
    if (length == 0 || head < 0x20 || head == 0x7F)
      out += fmt::format("\\x{:02x}", head);
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  return line;
}

}  // namespace mgpu::data
