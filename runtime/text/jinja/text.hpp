#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// Python's string functions on UTF-8: characters are code points. A byte that is not valid UTF-8
// counts as one character that equals no other, and is kept unchanged.
namespace mgpu::text::jinja {

struct Character {
  char32_t code = 0;       // 0xDC00 + the byte if it is not valid UTF-8
  std::size_t length = 0;  // in bytes, at least 1
};

// The character that begins at a byte of the text.
Character character_at(std::string_view text, std::size_t at);
void append_character(std::string& text, char32_t code);

// As text.find(part, from), but in linear time.
std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);

std::size_t count_characters(std::string_view text);
std::vector<std::string_view> split_characters(std::string_view text);
// The byte offset of a character; the text's size for the position after the last.
std::size_t byte_of_character(std::string_view text, std::size_t index);

bool is_space(char32_t code);  // str.isspace, which is also \s
bool is_printable(char32_t code);
// The general category's letter and kind, as "Lu".
std::string_view category(char32_t code);

// Without the leading or trailing characters that are in `characters`.
std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right);
// Without leading or trailing white space.
std::string_view strip_space(std::string_view text, bool left = true, bool right = true);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string swap_case(std::string_view text);
std::string capitalize(std::string_view text);  // str.capitalize
std::string title(std::string_view text);       // str.title; the filter `title` behaves differently
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

}  // namespace mgpu::text::jinja
