#pragma once

#include <string>

#include "runtime/text/jinja/value.hpp"

namespace mgpu::text::jinja {

// How a value is formatted: the part after the colon in str.format, or the characters after % in
// percent formatting.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0 for the value's own
  char sign = '-';
  bool alternate = false;
  std::size_t width = 0;
  char grouping = 0;  // , or _
  int precision = -1;
  char type = 0;
};

FormatSpec parse_format_spec(std::string_view text);
std::string format_value(const Value& value, const FormatSpec& spec, Budget& budget);
// A float in C's e, f or g notation, as Python writes it; precision -1 is 6.
std::string format_real(double value, const FormatSpec& spec);

// text % arguments
Value format_percent(const Text& text, const Value& arguments, Budget& budget);
// text.format(arguments)
Value format_braces(const Text& text, const Arguments& arguments, Budget& budget);

}  // namespace mgpu::text::jinja
