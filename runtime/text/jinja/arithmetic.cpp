#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "runtime/text/jinja/format.hpp"
#include "runtime/text/jinja/operators.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr Integer kSmallest = std::numeric_limits<std::int64_t>::min();
constexpr Integer kLargest = std::numeric_limits<std::int64_t>::max();

// Sums and remainders of such numbers do not overflow 128 bits.
Integer limited(Integer value) {
  constexpr Integer kMost = static_cast<Integer>(1) << 100;
  if (value < -kMost || value > kMost)
    throw Failure("arithmetic with integers of more than 100 bits is not supported");
  return value;
}

// No operator on two 64-bit numbers overflows 128 bits.
Integer small(Integer value) {
  if (value < kSmallest || value > kLargest)
    throw Failure("arithmetic with integers of more than 64 bits is not supported");
  return value;
}

const char* sign_of(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "** or pow()";
  }
  return "";
}

[[noreturn]] void unsupported(Operator op, const Value& left, const Value& right) {
  require_defined(left);
  require_defined(right);
  throw Failure(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign_of(op),
                            left.type_name(), right.type_name()));
}

Value power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) throw Failure("0.0 cannot be raised to a negative power");
    return {std::pow(static_cast<double>(base), static_cast<double>(exponent))};
  }
  Integer result = 1;
  while (exponent > 0) {
    if (exponent & 1) result = small(result) * small(base);
    exponent >>= 1;
    if (exponent > 0) base = small(base) * small(base);
  }
  return {result};
}

Value floor_of(Integer a, Integer b, bool remainder) {
  Integer quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    --quotient;
  }
  return {remainder ? rest : quotient};
}

Value floor_of(double a, double b, bool remainder) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (rest == 0) rest = std::copysign(0.0, b);
  if (remainder) return {rest};
  if (quotient == 0) return {std::copysign(0.0, a / b)};
  return {std::round(quotient)};
}

Value whole_operation(Operator op, Integer a, Integer b) {
  switch (op) {
    case Operator::add:
      return {a + b};
    case Operator::subtract:
      return {a - b};
    case Operator::multiply:
      return {small(a) * small(b)};
    case Operator::divide:
      return {static_cast<double>(a) / static_cast<double>(b)};
    case Operator::floor_divide:
      return floor_of(a, b, false);
    case Operator::modulo:
      return floor_of(a, b, true);
    case Operator::power:
      return power(small(a), small(b));
  }
  return {};
}

Value real_power(double a, double b) {
  if (a == 0 && b < 0) throw Failure("0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
    throw Failure("complex numbers are not supported");
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b))
    throw Failure("(34, 'Numerical result out of range')");
  return {result};
}

Value real_operation(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return {a + b};
    case Operator::subtract:
      return {a - b};
    case Operator::multiply:
      return {a * b};
    case Operator::divide:
      return {a / b};
    case Operator::floor_divide:
      return floor_of(a, b, false);
    case Operator::modulo:
      return floor_of(a, b, true);
    case Operator::power:
      return real_power(a, b);
  }
  return {};
}

Value number_operation(Operator op, const Number& a, const Number& b) {
  const bool divides =
      op == Operator::divide || op == Operator::floor_divide || op == Operator::modulo;
  if (divides && b.as_double() == 0)
    throw Failure(a.real || b.real ? "float division by zero"
                                   : "integer division or modulo by zero");
  if (a.real || b.real) return real_operation(op, a.as_double(), b.as_double());
  return whole_operation(op, limited(a.whole), limited(b.whole));
}

bool is_listed(const Value& value) {
  return value.is(Sequence::Kind::list) || value.is(Sequence::Kind::tuple);
}

Value repeat(const Value& value, Integer times, Budget& budget) {
  const auto count = static_cast<std::size_t>(times > 0 ? small(times) : 0);
  if (const auto* text = value.text()) {
    if (count > 0 && text->text.size() > kLargest / count) throw Failure("the text is too long");
    budget.spend_bytes(text->text.size() * count);
    std::string all;
    all.reserve(text->text.size() * count);
    for (std::size_t i = 0; i < count && !text->text.empty(); ++i) all += text->text;
    return {std::move(all), text->safe};
  }
  const auto& items = value.sequence()->items;
  if (count > 0 && items.size() > kLargest / 2 / count) throw Failure("the list is too long");
  budget.spend_elements(items.size() * count);
  std::vector<Value> all;
  for (std::size_t i = 0; i < count && !items.empty(); ++i)
    all.insert(all.end(), items.begin(), items.end());
  return Value::sequence(std::move(all), value.sequence()->kind, budget);
}

Value join_texts(const Text& left, const Text& right, Budget& budget) {
  budget.spend_bytes(left.text.size() + right.text.size());
  if (left.safe == right.safe) return {left.text + right.text, left.safe};
  return left.safe ? Value(left.text + escape_html(right.text), true)
                   : Value(escape_html(left.text) + right.text, true);
}

Value add(const Value& left, const Value& right, Budget& budget) {
  if (left.text() && right.text()) return join_texts(*left.text(), *right.text(), budget);
  require_defined(left);
  require_defined(right);
  if (left.text())
    throw Failure(fmt::format("can only concatenate str (not \"{}\") to str", right.type_name()));
  if (is_listed(left) && right.sequence() && left.sequence()->kind == right.sequence()->kind) {
    std::vector<Value> all = left.sequence()->items;
    all.insert(all.end(), right.sequence()->items.begin(), right.sequence()->items.end());
    return Value::sequence(std::move(all), left.sequence()->kind, budget);
  }
  if (is_listed(left))
    throw Failure(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", left.type_name(),
                              right.type_name()));
  unsupported(Operator::add, left, right);
}

}  // namespace

std::optional<Number> number_of(const Value& value) {
  if (const auto* held = value.get<Integer>()) return Number{.whole = *held};
  if (const auto* held = value.get<double>()) return Number{.real = true, .fraction = *held};
  if (const auto* held = value.get<bool>()) return Number{.whole = *held ? 1 : 0};
  return std::nullopt;
}

Integer whole_number(const Value& value, std::string_view what) {
  require_defined(value);
  const auto number = number_of(value);
  if (!number || number->real)
    throw Failure(fmt::format("{} must be an integer, not {}", what, value.type_name()));
  return small(number->whole);
}

Integer checked_integer(double value) {
  if (std::isnan(value)) throw Failure("cannot convert float NaN to integer");
  if (std::isinf(value)) throw Failure("cannot convert float infinity to integer");
  if (std::fabs(value) >= 1e38) throw Failure("integers of more than 128 bits are not supported");
  return static_cast<Integer>(value);
}

Value apply(Operator op, const Value& left, const Value& right, Budget& budget) {
  budget.spend(1);
  const auto a = number_of(left), b = number_of(right);
  if (a && b) return number_operation(op, *a, *b);
  if (op == Operator::add) return add(left, right, budget);
  if (op == Operator::modulo && left.text()) return format_percent(*left.text(), right, budget);
  if (op == Operator::multiply) {
    if ((left.text() || is_listed(left)) && b && !b->real) return repeat(left, b->whole, budget);
    if ((right.text() || is_listed(right)) && a && !a->real) return repeat(right, a->whole, budget);
  }
  unsupported(op, left, right);
}

Value negate(const Value& value, bool minus) {
  require_defined(value);
  const auto number = number_of(value);
  if (!number)
    throw Failure(
        fmt::format("bad operand type for unary {}: '{}'", minus ? '-' : '+', value.type_name()));
  if (number->real) return {minus ? -number->fraction : number->fraction};
  return {minus ? -number->whole : number->whole};
}

}  // namespace mgpu::text::jinja
