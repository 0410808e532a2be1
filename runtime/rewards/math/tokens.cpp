#include "runtime/rewards/math/tokens.hpp"

#include <optional>

#include "runtime/rewards/math/character_class.hpp"

namespace mgpu::rewards::math {
namespace {

constexpr std::size_t kMostTokens = 2000;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<Token> read() {
    while (skip_blanks(), at_ < text_.size()) {
      if (tokens_.size() >= kMostTokens) throw Malformed("it is too long");
      const char c = text_[at_];
      if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
        read_number();
      } else if (c == '\\') {
        read_command();
      } else {
        if (static_cast<unsigned char>(c) >= 0x80) throw Malformed("an unknown sign");
        push(is_letter(c) ? Token::Kind::letter : Token::Kind::sign, std::string(1, c));
        ++at_;
      }
    }
    push(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void skip_blanks() {
    blank_ = false;
    while (at_ < text_.size() && is_space_or_tab(text_[at_])) {
      blank_ = true;
      ++at_;
    }
  }

  void push(Token::Kind kind, std::string text) {
    if (kind != Token::Kind::end) {
      if (text == "(" || text == "[" || text == "\\{") ++brackets_;
      if (text == ")" || text == "]" || text == "\\}") --brackets_;
    }
    tokens_.push_back({.kind = kind, .text = std::move(text), .blank_before = blank_});
  }

  std::string digits() {
    const auto begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool three_digits_follow(std::size_t from) const {
    for (std::size_t i = 0; i < 3; ++i)
      if (from + i >= text_.size() || !is_digit(text_[from + i])) return false;
    return from + 3 >= text_.size() || !is_digit(text_[from + 3]);
  }

  // 1,234,567 and 1 234 567, not 1,2 nor 0,123.
  void read_groups(std::string& whole) {
    if (brackets_ > 0 || whole.empty() || whole.size() > 3 || whole[0] == '0') return;
    const char separator = peek(0);
    if (separator != ',' && separator != ' ') return;
    while (peek(0) == separator && three_digits_follow(at_ + 1)) {
      ++at_;
      whole += digits();
    }
  }

  // The repeating part of a decimal: \overline{3} after 0. and similar.
  std::optional<std::string> read_period() {
    for (const std::string_view bar : {"\\overline{", "\\bar{", "\\dot{"}) {
      if (!text_.substr(at_).starts_with(bar)) continue;
      const auto begin = at_ + bar.size();
      const auto end = text_.find('}', begin);
      if (end == text_.npos || end == begin) return std::nullopt;
      const auto period = text_.substr(begin, end - begin);
      for (const char c : period)
        if (!is_digit(c)) return std::nullopt;
      at_ = end + 1;
      return std::string(period);
    }
    return std::nullopt;
  }

  // In \frac12 and \sqrt2x each argument is one digit.
  bool argument_of_command() const {
    const auto last = tokens_.size();
    if (last >= 1 && (tokens_[last - 1].is("\\frac") || tokens_[last - 1].is("\\sqrt")))
      return true;
    return last >= 2 && tokens_[last - 2].is("\\frac") &&
           tokens_[last - 1].kind == Token::Kind::number;
  }

  void read_number() {
    if (is_digit(text_[at_]) && argument_of_command()) {
      push(Token::Kind::number, std::string(1, text_[at_]));
      tokens_.back().value = Rational(text_[at_++] - '0');
      return;
    }
    std::string whole = digits();
    read_groups(whole);
    std::string after;
    const bool point = peek(0) == '.';
    if (point) {
      ++at_;
      after = digits();
    }
    const auto period = point ? read_period() : std::nullopt;
    if (point && after.empty() && !period) throw Malformed("a point without digits behind it");
    if (whole.empty()) whole = "0";
    auto value = parse_decimal(point && !after.empty() ? whole + "." + after : whole);
    if (value && period) value = with_period(*value, after.size(), *period);
    if (!value) throw Malformed("a number is too long");
    if (point) whole.append(".").append(after);
    push(Token::Kind::number, std::move(whole));
    tokens_.back().value = *value;
    tokens_.back().decimal = point && !period;
  }

  static std::optional<Rational> with_period(const Rational& value, std::size_t places,
                                             const std::string& period) {
    const auto digits = parse_decimal(period);
    const auto shift = power(Rational(10), Rational(static_cast<long>(places)));
    const auto nines = power(Rational(10), Rational(static_cast<long>(period.size())));
    if (!digits || !shift || !nines) return std::nullopt;
    const auto rest = divide(*digits, *shift * (*nines - 1));
    return rest ? add(value, *rest) : std::nullopt;
  }

  void read_command() {
    const auto begin = at_++;
    if (at_ >= text_.size()) throw Malformed("a backslash at the end");
    if (!is_letter(text_[at_])) {
      ++at_;
    } else {
      while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    }
    push(Token::Kind::command, std::string(text_.substr(begin, at_ - begin)));
    auto& token = tokens_.back();
    if (token.text == "\\text" || token.text == "\\operatorname" || token.text == "\\mathbb")
      read_words();
  }

  // The text of \text{...}, unchanged, as a token of kind letter after the command.
  void read_words() {
    skip_blanks();
    if (peek(0) != '{') throw Malformed("words without braces");
    int depth = 0;
    const auto begin = at_ + 1;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '{') ++depth;
      if (text_[at_] == '}' && --depth == 0) break;
    }
    if (at_ >= text_.size()) throw Malformed("a brace is not closed");
    tokens_.push_back(
        {.kind = Token::Kind::letter, .text = std::string(text_.substr(begin, at_ - begin))});
    ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool blank_ = false;
  int brackets_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view latex) {
  return Reader(latex).read();
}

}  // namespace mgpu::rewards::math
