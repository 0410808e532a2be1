#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/value.hpp"

// What Python's operators and built-in functions do with values. They throw Failure with Python's
// words where Python raises.
namespace mgpu::text::jinja {

// A number, which a bool is too.
struct Number {
  bool real = false;
  Integer whole = 0;
  double fraction = 0;  // of a real one

  double as_double() const { return real ? fraction : static_cast<double>(whole); }
};
std::optional<Number> number_of(const Value& value);
// An index, count or the like: the number, or a failure that names what it was for.
Integer whole_number(const Value& value, std::string_view what);
Integer checked_integer(double value);

enum class Operator { add, subtract, multiply, divide, floor_divide, modulo, power };
Value apply(Operator op, const Value& left, const Value& right, Budget& budget);
Value negate(const Value& value, bool minus);

bool equal(const Value& left, const Value& right, Budget& budget);
// For <, > and their like; `op` is named when the two have no order.
std::partial_ordering compare(const Value& left, const Value& right, std::string_view op,
                              Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// The elements of what can be iterated; a generator is used up by it.
using Elements = std::shared_ptr<const std::vector<Value>>;
Elements elements(const Value& value, Budget& budget);
bool is_iterable(const Value& value);
std::optional<std::size_t> length(const Value& value);  // nothing where Python has no len()

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
