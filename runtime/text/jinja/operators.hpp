#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/value.hpp"

// Python's operators and built-in functions on values. Where Python raises, they throw Failure with
// Python's message.
namespace mgpu::text::jinja {

// A number. A bool counts as a number too.
struct Number {
  bool real = false;
  Integer whole = 0;
  double fraction = 0;  // if real

  double as_double() const { return real ? fraction : static_cast<double>(whole); }
};
std::optional<Number> number_of(const Value& value);
// An index, a count or the like. Throws a Failure that names `what` if the value is not a whole
// number.
Integer whole_number(const Value& value, std::string_view what);
Integer checked_integer(double value);

enum class Operator { add, subtract, multiply, divide, floor_divide, modulo, power };
Value apply(Operator op, const Value& left, const Value& right, Budget& budget);
Value negate(const Value& value, bool minus);

bool equal(const Value& left, const Value& right, Budget& budget);
// For <, > and so on. `op` is named in the error if the two cannot be compared.
std::partial_ordering compare(const Value& left, const Value& right, std::string_view op,
                              Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// The elements of an iterable value. This exhausts a generator.
using Elements = std::shared_ptr<const std::vector<Value>>;
Elements elements(const Value& value, Budget& budget);
bool is_iterable(const Value& value);
// Nothing if Python has no len() for it.
std::optional<std::size_t> length(const Value& value, Budget& budget);

// str(), repr() and json.dumps().
std::string to_text(const Value& value, Budget& budget);
std::string represent(const Value& value, Budget& budget);
std::string represent(double value);
std::string escape_html(std::string_view text);
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent{};  // of one level
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace mgpu::text::jinja
