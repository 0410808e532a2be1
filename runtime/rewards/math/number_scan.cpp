#include <algorithm>

#include "runtime/rewards/math/character_class.hpp"
#include "runtime/rewards/math/text_scan.hpp"

namespace mgpu::rewards::math {
namespace {

constexpr std::size_t kLongestSum = 80;

bool is_operator(char c) {
  return c == '+' || c == '-' || c == '*' || c == '/' || c == '^' || c == '(' || c == ')';
}

// `**` of bold text, and one currency sign.
std::size_t skip_bold(std::string_view text, std::size_t at) {
  return text.substr(at).starts_with("**") ? at + 2 : at;
}

std::size_t skip_currency(std::string_view text, std::size_t at) {
  for (const std::string_view sign : {"$", "\u20ac", "\u00a3", "\u00a5", "\u20b9", "\u20bd"})
    if (text.substr(at).starts_with(sign)) return at + sign.size();
  return at;
}

std::size_t behind_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

bool group_of_three(std::string_view text, std::size_t at) {
  return at + 3 <= text.size() && behind_digits(text.substr(0, at + 3), at) == at + 3;
}

// 1,234.5 or 1 234.5; 12.5 or 12,5; .5; 12. Returns it with a point and without separators.
std::optional<Span> number_at(std::string_view text, std::size_t at) {
  Span span{at, at, {""}, false};
  std::string& number = span.parts[0];
  std::size_t i = at;
  if (i < text.size() && text[i] == '-') {
    number = "-";
    ++i;
  }
  const auto whole = i;
  i = behind_digits(text, i);
  std::string digits(text.substr(whole, i - whole));
  const char separator = i < text.size() ? text[i] : '\0';
  bool grouped = false;
  if (!digits.empty() && digits.size() <= 3 && digits[0] != '0' &&
      (separator == ',' || separator == ' ')) {
    while (i < text.size() && (text[i] == ',' || text[i] == ' ') && group_of_three(text, i + 1)) {
      digits += text.substr(i + 1, 3);
      i += 4;
      grouped = true;
    }
  }
  const bool point = i + 1 < text.size() && is_digit(text[i + 1]) &&
                     (text[i] == '.' || (!grouped && !digits.empty() && text[i] == ','));
  if (digits.empty() && (!point || whole != at)) return std::nullopt;
  number += digits.empty() ? "0" : digits;
  if (point) {
    const auto end = behind_digits(text, i + 1);
    number += "." + std::string(text.substr(i + 1, end - i - 1));
    i = end;
  }
  span.end = behind_percent(text, i, span.percent);
  return span;
}

bool ends_expression(std::string_view text, std::size_t at) {
  at = skip_bold(text, at);
  return at == text.size() || is_blank(text[at]) ||
         std::string_view(".,:)$").find(text[at]) != std::string_view::npos;
}

// 3/4, 2*(1+2): digits with at least one operator.
std::optional<Span> sum_at(std::string_view text, std::size_t at) {
  std::size_t i = at;
  for (const char optional : {'-', '(', '-'})
    if (i < text.size() && text[i] == optional) ++i;
  if (i >= text.size() || !is_digit(text[i])) return std::nullopt;
  const auto first = i;
  while (i < text.size() && i - at < kLongestSum &&
         (is_digit(text[i]) || text[i] == '.' || is_blank(text[i]) || is_operator(text[i])))
    ++i;
  for (; i > first + 2; --i) {
    if (is_blank(text[i - 1]) || !ends_expression(text, i)) continue;
    const auto piece = text.substr(first, i - first);
    const auto sign = std::find_if(piece.begin(), piece.end(), is_operator);
    if (sign == piece.end() || sign + 1 == piece.end()) return std::nullopt;
    std::string flat(text.substr(at, i - at));
    std::replace_if(flat.begin(), flat.end(), is_blank, ' ');
    return Span{at, i, {std::move(flat)}, false};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Span> number_spans(std::string_view text) {
  std::vector<Span> spans;
  std::size_t at = 0;
  while (at < text.size()) {
    const bool behind_blank = at == 0 || is_blank(text[at - 1]) || text[at - 1] == '=';
    if (!behind_blank) {
      ++at;
      continue;
    }
    const auto begin = skip_bold(text, at);
    auto span = sum_at(text, begin);
    if (!span) span = number_at(text, skip_currency(text, begin));
    if (!span) {
      ++at;
      continue;
    }
    span->begin = at == 0 ? 0 : at - 1;
    at = std::max(span->end, at + 1);
    spans.push_back(std::move(*span));
  }
  return spans;
}

}  // namespace mgpu::rewards::math
