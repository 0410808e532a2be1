#include "runtime/text/jinja/lexer.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/jinja/literals.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

// All newlines become "\n", and the last one is not part of the template.
std::string normalized(std::string_view source) {
  std::string out;
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r' && at + 1 < source.size() && source[at + 1] == '\n') continue;
    out += source[at] == '\r' ? '\n' : source[at];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) outside();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
  }

  void skip_space() {
    while (at_ < source_.size()) {
      const auto [code, length] = character_at(source_, at_);
      if (!is_space(code)) break;
      advance(length);
    }
  }

  std::size_t find_tag() const {
    for (std::size_t at = source_.find('{', at_); at != source_.npos;
         at = source_.find('{', at + 1))
      if (at + 1 < source_.size() &&
          std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos)
        return at;
    return source_.npos;
  }

  // Adds the text before a tag, without the white space that the tag removes.
  void add_text(std::string_view text, char sign, bool takes_indent) {
    if (sign == '-') {
      text = strip_space(text, false, true);
    } else if (sign != '+' && takes_indent) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t start = newline == text.npos ? 0 : newline + 1;
      const bool at_line_start = start > 0 || line_starting_;
      if (at_line_start && strip_space(text.substr(start)).empty()) text = text.substr(0, start);
    }
    if (!text.empty()) add(TokenKind::text, std::string(text));
  }

  void outside() {
    const std::size_t tag = find_tag();
    if (tag == source_.npos) {
      add(TokenKind::text, std::string(rest()));
      advance(source_.size() - at_);
      return;
    }
    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    add_text(std::string_view(source_).substr(at_, tag - at_), sign, kind != '{');
    advance(tag - at_);
    const std::size_t raw = kind == '%' ? raw_begin(sign) : 0;
    if (raw > 0) {
      raw_block(raw);
    } else if (kind == '#') {
      advance(sign ? 3 : 2);
      comment();
    } else {
      add(kind == '%' ? TokenKind::block_begin : TokenKind::print_begin, "");
      advance(sign ? 3 : 2);
      inside(kind == '%');
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  // After a closing delimiter, "-" removes white space; otherwise a block or comment removes one
  // newline.
  void close(char sign, bool takes_newline) {
    if (sign == '-')
      skip_space();
    else if (sign == '\0' && takes_newline && next_is("\n"))
      advance(1);
  }

  void comment() {
    const int line = line_;
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail_at(line, "a comment is not closed");
    const char before = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    close(before == '-' || before == '+' ? before : '\0', true);
  }

  // The length of "{% raw %}" if it begins here.
  std::size_t raw_begin(char sign) const {
    std::size_t at = at_ + (sign ? 3 : 2);
    at = skip_from(at);
    if (std::string_view(source_).substr(at, 3) != "raw") return 0;
    at = skip_from(at + 3);
    const std::string_view left = std::string_view(source_).substr(at);
    return left.starts_with("%}") ? at + 2 - at_ : left.starts_with("-%}") ? at + 3 - at_ : 0;
  }

  std::size_t skip_from(std::size_t at) const {
    while (at < source_.size() && is_space(character_at(source_, at).code))
      at += character_at(source_, at).length;
    return at;
  }

  void raw_block(std::size_t begin) {
    const int line = line_;
    advance(begin);
    if (source_[at_ - 3] == '-') skip_space();
    line_starting_ = source_[at_ - 1] == '\n';
    for (std::size_t tag = source_.find("{%", at_); tag != source_.npos;
         tag = source_.find("{%", tag + 1)) {
      const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const char sign = after == '-' || after == '+' ? after : '\0';
      std::size_t at = skip_from(tag + (sign ? 3 : 2));
      if (std::string_view(source_).substr(at, 6) != "endraw") continue;
      at = skip_from(at + 6);
      const char last = at < source_.size() ? source_[at] : '\0';
      const char end_sign = last == '-' || last == '+' ? last : '\0';
      if (end_sign) ++at;
      if (std::string_view(source_).substr(at, 2) != "%}") continue;
      add_text(std::string_view(source_).substr(at_, tag - at_), sign, true);
      advance(at + 2 - at_);
      close(end_sign, true);
      return;
    }
    fail_at(line, "a raw block is not closed");
  }

  // The tokens up to the closing delimiter, which is not recognized within brackets.
  void inside(bool block) {
    const int line = line_;
    const std::string_view delimiter = block ? "%}" : "}}";
    while (true) {
      skip_space();
      if (at_ == source_.size())
        fail_at(line, block ? "a {% tag is not closed" : "a {{ tag is not closed");
      if (brackets_.empty()) {
        const char sign = next_is("-") || (block && next_is("+")) ? source_[at_] : '\0';
        if (rest().substr(sign ? 1 : 0).starts_with(delimiter)) {
          add(block ? TokenKind::block_end : TokenKind::print_end, "");
          advance(delimiter.size() + (sign ? 1 : 0));
          close(sign, block);
          return;
        }
      }
      token();
    }
  }

  void token() {
    const char c = source_[at_];
    if (is_digit(c)) {
      const auto [kind, length] = scan_number(source_, at_);
      std::string digits(rest().substr(0, length));
      std::erase(digits, '_');
      add(kind, std::move(digits));
      advance(length);
    } else if (begins_name(c)) {
      std::size_t length = 1;
      while (length < rest().size() && (begins_name(rest()[length]) || is_digit(rest()[length])))
        ++length;
      add(TokenKind::name, std::string(rest().substr(0, length)));
      advance(length);
    } else if (c == '"' || c == '\'') {
      const std::size_t length = scan_string(source_, at_, line_);
      add(TokenKind::string, unescape(rest().substr(1, length - 2), line_));
      advance(length);
    } else {
      sign();
    }
  }

  void sign() {
    static constexpr std::string_view kSigns[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::find_if(std::begin(kSigns), std::end(kSigns),
                                     [this](std::string_view each) { return next_is(each); });
    if (found == std::end(kSigns))
      fail_at(line_, fmt::format("unexpected character '{}'",
                                 rest().substr(0, character_at(source_, at_).length)));
    balance((*found)[0]);
    add(TokenKind::sign, std::string(*found));
    advance(found->size());
  }

  void balance(char c) {
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (const auto open = kOpen.find(c); open != kOpen.npos) brackets_ += kClose[open];
    if (kClose.find(c) == kClose.npos) return;
    if (brackets_.empty()) fail_at(line_, fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c)
      fail_at(line_, fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closing brackets that are still expected
  std::vector<Token> tokens_;
};

}  // namespace

void fail_at(int line, std::string_view message) {
  std::string shown;
  for (const char c : message.substr(0, 500)) {
    if (c == '\n')
      shown += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      shown += c;
  }
  throw rendezvous::InputError(fmt::format("chat template line {}: {}", line, shown));
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace mgpu::text::jinja
