#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "runtime/text/jinja/format.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr std::size_t kWidest = 1'000'000;
constexpr int kMostPrecise = 1000;

std::size_t take_number(std::string_view text, std::size_t& at, std::size_t most) {
  std::size_t number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + static_cast<std::size_t>(text[at] - '0');
    if (number > most) throw Failure("a width or precision in a format is too large");
  }
  return number;
}

std::string group_digits(const std::string& digits, char separator, std::size_t every) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string grouped(std::string body, const FormatSpec& spec, std::size_t every) {
  if (spec.grouping == 0) return body;
  const std::size_t end = std::min(body.find_first_not_of("0123456789abcdefABCDEF"), body.size());
  return group_digits(body.substr(0, end), spec.grouping, every) + body.substr(end);
}

std::string pad(const std::string& prefix, const std::string& body, const FormatSpec& spec,
                char own_align, Budget& budget) {
  const std::size_t size = count_characters(prefix) + count_characters(body);
  if (spec.width <= size) return prefix + body;
  budget.spend_bytes(spec.width * spec.fill.size());
  const auto fill = [&spec](std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  const std::size_t missing = spec.width - size;
  switch (spec.align != 0 ? spec.align : own_align) {
    case '<':
      return prefix + body + fill(missing);
    case '^':
      return fill(missing / 2) + prefix + body + fill(missing - missing / 2);
    case '=':
      return prefix + fill(missing) + body;
    default:
      return fill(missing) + prefix + body;
  }
}

std::string sign_for(bool negative, const FormatSpec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string whole_digits(Integer magnitude, char type) {
  switch (type) {
    case 'b':
      return fmt::format("{:b}", magnitude);
    case 'o':
      return fmt::format("{:o}", magnitude);
    case 'x':
      return fmt::format("{:x}", magnitude);
    case 'X':
      return fmt::format("{:X}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string format_whole(Integer value, const FormatSpec& spec, Budget& budget) {
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF) throw Failure("%c arg not in range(0x110000)");
    std::string out;
    append_character(out, static_cast<char32_t>(value));
    return pad("", out, spec, '<', budget);
  }
  std::string digits = whole_digits(value < 0 ? -value : value, spec.type);
  if (spec.precision > 0 && digits.size() < static_cast<std::size_t>(spec.precision))
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  std::string prefix = sign_for(value < 0, spec);
  const bool based =
      spec.type != 0 && std::string_view("boxX").find(spec.type) != std::string_view::npos;
  if (spec.alternate && based) (prefix += '0') += spec.type;
  return pad(prefix, grouped(std::move(digits), spec, based ? 4 : 3), spec, '>', budget);
}

std::string chars_of(double value, std::chars_format form, int precision) {
  std::string buffer(static_cast<std::size_t>(precision) + 400, '\0');
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, form, precision);
  buffer.resize(static_cast<std::size_t>(end.ptr - buffer.data()));
  return buffer;
}

}  // namespace

FormatSpec parse_format_spec(std::string_view text) {
  static constexpr std::string_view kAligns = "<>^=";
  FormatSpec spec;
  std::size_t at = 0;
  const auto next = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != any.npos ? text[at++] : '\0';
  };
  if (const std::size_t first = text.empty() ? 0 : character_at(text, 0).length;
      first < text.size() && kAligns.find(text[first]) != kAligns.npos) {
    spec.fill = text.substr(0, first);
    at = first;
  }
  spec.align = next(kAligns);
  if (const char sign = next("+- ")) spec.sign = sign;
  spec.alternate = next("#") != 0;
  if (next("0") != 0 && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = take_number(text, at, kWidest);
  spec.grouping = next(",_");
  if (next(".") != 0) spec.precision = static_cast<int>(take_number(text, at, kMostPrecise));
  spec.type = next("bcdeEfFgGnosxX%");
  if (at != text.size()) throw Failure(fmt::format("invalid format specifier '{}'", text));
  return spec;
}

std::string format_real(double value, const FormatSpec& spec) {
  if (std::isnan(value)) return "nan";
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return "inf";
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'e':
    case 'E':
      return chars_of(magnitude, std::chars_format::scientific, precision);
    case 'f':
    case 'F':
      return chars_of(magnitude, std::chars_format::fixed, precision);
    case '%':
      return chars_of(magnitude * 100, std::chars_format::fixed, precision) + "%";
    case 'g':
    case 'G':
    case 'n':
      return chars_of(magnitude, std::chars_format::general, std::max(precision, 1));
    default:
      if (spec.precision >= 0)
        throw Failure("a float's format with a precision needs a type, as in '.2f'");
      return represent(magnitude);
  }
}

std::string format_value(const Value& value, const FormatSpec& spec, Budget& budget) {
  const auto number = number_of(value);
  const bool wants_real =
      spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos;
  if (number && !(value.get<bool>() && spec.type == 0)) {
    if (!number->real && !wants_real) {
      if (spec.type == 's') throw Failure("Unknown format code 's' for object of type 'int'");
      return format_whole(number->whole, spec, budget);
    }
    if (number->real && spec.type != 0 && !wants_real)
      throw Failure(fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
    if (spec.alternate) throw Failure("the # flag of a float's format is not supported");
    std::string body = grouped(format_real(number->as_double(), spec), spec, 3);
    if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') body = upper(body);
    return pad(sign_for(std::signbit(number->as_double()), spec), body, spec, '>', budget);
  }
  if (spec.type != 0 && spec.type != 's')
    throw Failure(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                              value.type_name()));
  std::string text = to_text(value, budget);
  if (spec.precision >= 0)
    text.resize(byte_of_character(text, static_cast<std::size_t>(spec.precision)));
  return pad("", text, spec, '<', budget);
}

}  // namespace mgpu::text::jinja
