#include "runtime/text/jinja/text.hpp"

#include <string.h>  // memmem

#include <algorithm>

#include <utf8proc.h>

#include "runtime/text/jinja/case.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr char32_t kBrokenByte = 0xDC00;

struct CodeRange {
  char32_t first, last;
};

// Unicode's Other_Uppercase and Other_Lowercase: cased characters outside the categories Lu and Ll.
constexpr CodeRange kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
constexpr CodeRange kOtherLower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};

template <std::size_t Size>
bool is_in_ranges(char32_t code, const CodeRange (&ranges)[Size]) {
  return std::any_of(ranges, ranges + Size, [code](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

bool is_upper_character(char32_t code) {
  return category(code) == "Lu" || is_in_ranges(code, kOtherUpper);
}

bool is_lower_character(char32_t code) {
  return category(code) == "Ll" || is_in_ranges(code, kOtherLower);
}

bool is_cased(char32_t code) {
  return category(code) == "Lt" || is_upper_character(code) || is_lower_character(code);
}

bool is_case_ignorable(char32_t code) {
  const auto kind = category(code);
  return kind == "Mn" || kind == "Me" || kind == "Cf" || kind == "Lm" || kind == "Sk" ||
         code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019;
}

void append_all(std::string& text, const std::u32string& codes) {
  for (const char32_t code : codes) append_character(text, code);
}

// Whether a capital sigma at this position becomes a final sigma in lower case.
bool ends_word(std::u32string_view text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

std::u32string decode(std::string_view text) {
  std::u32string codes;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = character_at(text, at);
    codes += code;
    at += length;
  }
  return codes;
}

void append_lower(std::string& out, std::u32string_view text, std::size_t at) {
  if (text[at] == 0x3A3)
    append_character(out, ends_word(text, at) ? 0x3C2 : 0x3C3);
  else
    append_all(out, lower_case(text[at]));
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1};
  utf8proc_int32_t code = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                       static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  if (length <= 0) return {kBrokenByte + byte, 1};
  return {static_cast<char32_t>(code), static_cast<std::size_t>(length)};
}

void append_character(std::string& text, char32_t code) {
  if (code < 0x80 || (code >= kBrokenByte + 0x80 && code <= kBrokenByte + 0xFF)) {
    text += static_cast<char>(code & 0xFF);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return text.npos;
  const auto* const found =
      ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data())
               : text.npos;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).length) ++count;
  return count;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (std::size_t at = 0; at < text.size(); at += characters.back().size())
    characters.push_back(text.substr(at, character_at(text, at).length));
  return characters;
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_at(text, at).length;
  return at;
}

bool is_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13) || (code >= 28 && code <= 31);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view category(char32_t code) {
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
}

bool is_printable(char32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7F;
  const auto kind = category(code);
  return kind[0] != 'C' && kind[0] != 'Z';
}

std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right) {
  const std::u32string set = decode(characters);
  const auto drop = [&set](char32_t code) { return set.find(code) != set.npos; };
  while (left && !text.empty()) {
    const auto [code, length] = character_at(text, 0);
    if (!drop(code)) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (text[start] & 0xC0) == 0x80) --start;
    if (character_at(text, start).length != text.size() - start) start = text.size() - 1;
    if (!drop(character_at(text, start).code)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::string_view strip_space(std::string_view text, bool left, bool right) {
  static const std::string spaces = [] {
    std::string all;
    for (char32_t code = 0; code <= 0x3000; ++code)
      if (is_space(code)) append_character(all, code);
    return all;
  }();
  // Most text neither begins nor ends with such characters, so check before unpacking the set.
  const auto plain = [](char c) { return static_cast<unsigned char>(c) < 0x80 && !is_space(c); };
  if (!text.empty() && left && plain(text.front())) left = false;
  if (!text.empty() && right && plain(text.back())) right = false;
  return left || right ? strip(text, spaces, left, right) : text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = character_at(text, at);
    const bool ends = (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
                      code == 0x2028 || code == 0x2029;
    const std::size_t end = at;
    at += length;
    if (!ends) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string upper(std::string_view text) {
  std::string out;
  for (const char32_t code : decode(text)) append_all(out, upper_case(code));
  return out;
}

std::string lower(std::string_view text) {
  const std::u32string codes = decode(text);
  std::string out;
  for (std::size_t i = 0; i < codes.size(); ++i) append_lower(out, codes, i);
  return out;
}

std::string swap_case(std::string_view text) {
  const std::u32string codes = decode(text);
  std::string out;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (is_upper_character(codes[i]))
      append_lower(out, codes, i);
    else if (is_lower_character(codes[i]))
      append_all(out, upper_case(codes[i]));
    else
      append_character(out, codes[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  const std::u32string codes = decode(text);
  std::string out;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (i == 0)
      append_all(out, title_case(codes[i]));
    else
      append_lower(out, codes, i);
  }
  return out;
}

std::string title(std::string_view text) {
  const std::u32string codes = decode(text);
  std::string out;
  bool in_word = false;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (in_word)
      append_lower(out, codes, i);
    else
      append_all(out, title_case(codes[i]));
    in_word = is_cased(codes[i]);
  }
  return out;
}

bool is_upper(std::string_view text) {
  const std::u32string codes = decode(text);
  return std::any_of(codes.begin(), codes.end(), is_upper_character) &&
         std::none_of(codes.begin(), codes.end(),
                      [](char32_t code) { return is_cased(code) && !is_upper_character(code); });
}

bool is_lower(std::string_view text) {
  const std::u32string codes = decode(text);
  return std::any_of(codes.begin(), codes.end(), is_lower_character) &&
         std::none_of(codes.begin(), codes.end(),
                      [](char32_t code) { return is_cased(code) && !is_lower_character(code); });
}

}  // namespace mgpu::text::jinja
