#include "runtime/text/jinja/literals.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : 99;
}

// The end of a run of digits that may contain single underscores.
std::size_t skip_digits(std::string_view source, std::size_t at, int base) {
  const auto is_digit = [&](std::size_t i) {
    return i < source.size() && digit_of(source[i]) < base;
  };
  while (is_digit(at) || (at < source.size() && source[at] == '_' && is_digit(at + 1))) ++at;
  return at;
}

void append_code(std::string& out, std::string_view digits, std::size_t count, char letter,
                 int line) {
  std::uint32_t code = 0;
  const auto enough = digits.substr(0, count);
  const bool valid = enough.size() == count && std::all_of(enough.begin(), enough.end(),
                                                           [](char c) { return digit_of(c) < 16; });
  if (!valid) fail_at(line, fmt::format("a \\{} escape needs {} hex digits", letter, count));
  for (const char c : enough) code = code * 16 + static_cast<std::uint32_t>(digit_of(c));
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    fail_at(line, fmt::format("\\{}{} is no character", letter, enough));
  append_character(out, code);
}

}  // namespace

std::pair<TokenKind, std::size_t> scan_number(std::string_view source, std::size_t at) {
  const auto peek = [&](std::size_t i) { return i < source.size() ? source[i] : '\0'; };
  const auto digit = [&](std::size_t i) { return digit_of(peek(i)) < 10; };
  const bool behind_dot = at > 0 && source[at - 1] == '.';
  const std::size_t whole = skip_digits(source, at, 10);
  std::size_t end = whole;
  if (peek(end) == '.' && digit(end + 1)) end = skip_digits(source, end + 1, 10);
  if ((peek(end) | 0x20) == 'e') {
    const std::size_t power = end + (peek(end + 1) == '+' || peek(end + 1) == '-' ? 2 : 1);
    if (digit(power)) end = skip_digits(source, power, 10);
  }
  if (end > whole && !behind_dot) return {TokenKind::real, end - at};
  const char letter = static_cast<char>(peek(at + 1) | 0x20);
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  if (peek(at) == '0' && base != 10) {
    const std::size_t first = at + 2 + (peek(at + 2) == '_' ? 1 : 0);
    if (digit_of(peek(first)) < base)
      return {TokenKind::integer, skip_digits(source, first, base) - at};
  }
  if (peek(at) != '0') return {TokenKind::integer, whole - at};
  end = at + 1;  // 007 becomes 00 and 7, which the parser rejects
  while (peek(end) == '0' || (peek(end) == '_' && peek(end + 1) == '0')) ++end;
  return {TokenKind::integer, end - at};
}

std::size_t scan_string(std::string_view source, std::size_t at, int line) {
  for (std::size_t end = at + 1; end < source.size(); ++end) {
    if (source[end] == source[at]) return end + 1 - at;
    if (source[end] == '\\') ++end;
  }
  fail_at(line, "a string is not closed");
}

std::string unescape(std::string_view literal, int line) {
  static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (std::size_t at = 0; at < literal.size(); ++at) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      out += literal[at];
      continue;
    }
    const char letter = literal[++at];
    if (const auto known = kLetters.find(letter); known != kLetters.npos) {
      out += kMeanings[known];
    } else if (letter >= '0' && letter <= '7') {
      char32_t code = 0;
      std::size_t end = at;
      for (; end < at + 3 && end < literal.size() && digit_of(literal[end]) < 8; ++end)
        code = code * 8 + static_cast<char32_t>(digit_of(literal[end]));
      append_character(out, code);
      at = end - 1;
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const std::size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      append_code(out, literal.substr(at + 1), count, letter, line);
      at += count;
    } else if (letter == 'N') {
      fail_at(line, "\\N{...} in a string is not supported; write the character itself");
    } else if (letter != '\n') {
      (out += '\\') += letter;
    }
  }
  return out;
}

}  // namespace mgpu::text::jinja
