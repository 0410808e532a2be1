#include <array>
#include <cctype>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/regex.hpp"
#include "runtime/text/unicode_additions.hpp"

namespace mgpu::text {
namespace {

// The ranges of a category that the library's tables may not have, as the contents of a bracket
// class.
std::string additions(std::string_view category) {
  std::string ranges;
  for (const auto& range : assigned_after_unicode_14()) {
    if (!std::string_view(range.category).starts_with(category)) continue;
    ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<unsigned>(range.first),
                          static_cast<unsigned>(range.last));
  }
  return ranges;
}

// ASCII is listed in addition to the property, because PCRE2 looks it up in a bitmap, which is much
// faster.
std::string property_class(std::string_view name) {
  const std::string_view ascii = name == "L" ? "a-zA-Z" : name == "N" || name == "Nd" ? "0-9" : "";
  const bool category = name.size() <= 2 && !name.empty() && name != "L&";
  return fmt::format("{}\\p{{{}}}{}", ascii, name, category ? additions(name) : "");
}

std::string pattern_word_class() {
  return "a-zA-Z0-9_\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" +
         additions("L") + additions("M") + additions("Nd");
}

// \b alone becomes several kilobytes.
constexpr std::size_t kLongestPattern = 1 << 20;

// Translates a pattern in one pass from left to right.
class Translation {
 public:
  explicit Translation(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (out_.size() > kLongestPattern) refuse("a pattern of this length");
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        within_class(c);
      } else {
        outside_class(c);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw rendezvous::InputError(fmt::format("{} is not supported (at byte {})", what, at_));
  }
  char peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void copy(std::size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  void outside_class(char c) {
    if (c == '[') {
      in_class_ = true;
      copy(1);
      if (peek(0) == '^') copy(1);
      if (peek(0) == ']') copy(1);  // the first ] is a character
    } else if (c == '(' && peek(1) == '?') {
      options();
    } else if (c == '}' && peek(1) == '+' && closes_interval()) {
      refuse("{n,m}+");  // possessive in PCRE2, a repeated repeat in Oniguruma
    } else {
      copy(1);
    }
  }

  bool closes_interval() const {
    std::size_t i = at_;
    while (i > 0 && (std::isdigit(static_cast<unsigned char>(in_[i - 1])) || in_[i - 1] == ','))
      --i;
    return i > 0 && i < at_ && in_[i - 1] == '{';
  }

  // In Oniguruma, (?m) lets the dot match a newline; in PCRE2 that is (?s).
  void options() {
    std::size_t end = at_ + 2;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos) {
      ++end;
    }
    const bool group = end < in_.size() && (in_[end] == ':' || in_[end] == ')');
    const std::size_t first = out_.size();
    copy(group ? end - at_ : 2);
    for (std::size_t i = first; group && i < out_.size(); ++i) {
      if (out_[i] == 'm') out_[i] = 's';
    }
  }

  void within_class(char c) {
    if (c == '[' && peek(1) == ':') {
      const std::size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) refuse("[: without :]");
      copy(end + 2 - at_);
      return;
    }
    if (c == '[') refuse("a set within a set");
    if (c == '&' && peek(1) == '&') refuse("&& within a set");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void set(const std::string& inside, bool negated) {
    if (in_class_ && negated) refuse(fmt::format("{} within a set", in_.substr(at_, 2)));
    out_ += in_class_ ? inside : (negated ? "[^" : "[") + inside + "]";
  }

  void escape() {
    const char c = peek(1);
    switch (c) {
      case '\0':
        refuse("a pattern that ends in a backslash");
      case 's':
        out_ += in_class_ ? "\\t-\\r \\p{White_Space}" : "\\p{White_Space}";
        break;
      case 'S':
        out_ += "\\P{White_Space}";
        break;
      case 'd':
      case 'D':
        set(property_class("Nd"), c == 'D');
        break;
      case 'w':
      case 'W':
        set(pattern_word_class(), c == 'W');
        break;
      case 'b':
      case 'B':
        boundary(c);
        break;
      case 'p':
      case 'P':
        property();
        return;
      case 'h':
      case 'H':
        refuse(fmt::format("\\{}", c));  // a hex digit in Oniguruma, white space in PCRE2
      case 'u':
        unicode_escape();
        return;
      case 'x':
        if (peek(2) != '{' && peek(2) > '7') refuse("\\x of a byte that is not ASCII");
        [[fallthrough]];
      default:
        copy(2);
        return;
    }
    at_ += 2;
  }

  void boundary(char c) {
    if (in_class_) {
      out_ += in_.substr(at_, 2);
      return;
    }
    const std::string w = "[" + pattern_word_class() + "]";
    out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", w)
                     : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", w);
  }

  void property() {
    if (peek(2) != '{') refuse(fmt::format("\\{} without braces", peek(1)));
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) refuse("\\p{ without }");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    bool negated = peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (in_class_ && negated) {
      out_ += fmt::format("\\P{{{}}}", name);  // limited to the library's Unicode version
    } else {
      set(property_class(name), negated);
    }
    at_ = end + 1;
  }

  void unicode_escape() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") < 4) {
      refuse("\\u without four hex digits");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  std::string_view in_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string to_pcre2(std::string_view pattern) {
  return Translation(pattern).run();
}

std::string word_class() {
  return "a-zA-Z0-9_\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}" + additions("L") +
         additions("M") + additions("Nd");
}

}  // namespace mgpu::text
