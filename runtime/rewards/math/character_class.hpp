#pragma once

#include <cstddef>
#include <string_view>

// Classes of ASCII characters.
namespace mgpu::rewards::math {

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
inline bool is_space_or_tab(char c) {
  return c == ' ' || c == '\t';
}
inline bool is_blank(char c) {  // also the end of a line
  return is_space_or_tab(c) || c == '\n' || c == '\r';
}

// The position of the first character at or after `at` that is not blank.
inline std::size_t skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && is_blank(text[at])) ++at;
  return at;
}

}  // namespace mgpu::rewards::math
