#include "runtime/text/jinja/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

// Python's digits may be grouped by single underscores.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !word(text[i - 1]) || !word(text[i + 1])) return {};
  }
  return out;
}

std::optional<Integer> parse_whole(std::string_view text, int base) {
  text = strip_space(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  const auto prefixed = [&](char letter) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter;
  };
  const char letter = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (letter != 0 && prefixed(letter)) text.remove_prefix(2);
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return {};
  Integer value = 0;
  for (const char c : *digits) {
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return {};
    value = value * base + digit;
    if (value > (static_cast<Integer>(1) << 100))
      throw Failure("integers of more than 100 bits are not supported");
  }
  return negative ? -value : value;
}

std::optional<double> parse_real(std::string_view text) {
  const auto plain = without_underscores(strip_space(text));
  if (!plain) return {};
  std::string_view digits = *plain;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits.starts_with("nan(")) return {};
  double value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ptr != digits.data() + digits.size() || end.ec == std::errc::invalid_argument) return {};
  if (end.ec == std::errc::result_out_of_range) {
    // Too large or too small: from_chars does not distinguish them.
    const std::size_t power = digits.find_first_of("eE");
    const bool tiny = power != digits.npos && digits.substr(power + 1).starts_with('-');
    value = tiny ? 0 : std::numeric_limits<double>::infinity();
  }
  return negative ? -value : value;
}

Value round_half_even(double value, int precision) {
  if (!std::isfinite(value) || precision > 300) return {value};
  if (precision < 0) {
    const double scale = std::pow(10.0, -precision);
    return {std::nearbyint(value / scale) * scale};
  }
  char buffer[800];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, precision);
  double result = 0;
  std::from_chars(buffer, end.ptr, result);
  return {result};
}

Integer round_whole(Integer value, int precision) {
  Integer scale = 1;
  for (int i = precision; i < 0; ++i) scale *= 10;
  Integer quotient = value / scale, rest = value % scale;
  if (rest < 0) {
    rest += scale;
    --quotient;
  }
  if (rest * 2 > scale || (rest * 2 == scale && (quotient & 1) != 0)) ++quotient;
  return quotient * scale;
}

}  // namespace

Value to_whole(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("int", arguments, {"default", "base"});
  const Value other = given.at_or(0, Value::integer(0));
  if (const auto* text = self.text()) {
    interpreter.budget().spend_bytes(text->text.size());
    const auto base = static_cast<int>(given.has(1) ? whole_number(given[1], "base") : 10);
    if (base < 2 || base > 36) throw Failure("int's base must be 2 to 36");
    if (const auto whole = parse_whole(text->text, base)) return {*whole};
    const auto real = parse_real(text->text);
    return real && std::isfinite(*real) ? Value(checked_integer(*real)) : other;
  }
  require_defined(self);
  const auto number = number_of(self);
  if (!number || (number->real && !std::isfinite(number->fraction))) return other;
  return {number->real ? checked_integer(number->fraction) : number->whole};
}

Value to_real(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("float", arguments, {"default"});
  const Value other = given.at_or(0, Value(0.0));
  if (const auto* text = self.text()) {
    interpreter.budget().spend_bytes(text->text.size());
    const auto real = parse_real(text->text);
    return real ? Value(*real) : other;
  }
  require_defined(self);
  const auto number = number_of(self);
  return number ? Value(number->as_double()) : other;
}

Value rounded(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("round", arguments, {"precision", "method"});
  const auto precision = static_cast<int>(std::clamp<Integer>(
      given.has(0) ? whole_number(given[0], "round's precision") : 0, -300, 1000));
  const std::string method = given.has(1) && given[1].text() ? given[1].text()->text : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    throw Failure("method must be common, ceil or floor");
  require_defined(self);
  const auto number = number_of(self);
  if (!number)
    throw Failure(fmt::format("type {} doesn't define __round__ method", self.type_name()));
  if (method == "common") {
    if (number->real) return round_half_even(number->fraction, precision);
    if (precision >= 0) return {number->whole};
    return {precision < -30 ? Integer{0} : round_whole(number->whole, precision)};
  }
  const double scale = std::pow(10.0, precision), scaled = number->as_double() * scale;
  return {(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale};
}

Value magnitude(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("abs", arguments, {});
  require_defined(self);
  const auto number = number_of(self);
  if (!number) throw Failure(fmt::format("bad operand type for abs(): '{}'", self.type_name()));
  if (number->real) return {std::fabs(number->fraction)};
  return {number->whole < 0 ? -number->whole : number->whole};
}

}  // namespace mgpu::text::jinja
