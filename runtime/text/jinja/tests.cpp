#include <fmt/format.h>

#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/library.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

// A test without arguments.
template <bool (*holds)(const Value&)>
Value plain(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("the test", arguments, {});
  return {holds(self)};
}

bool is_defined(const Value& value) {
  return !value.undefined();
}
bool is_undefined(const Value& value) {
  return value.undefined() != nullptr;
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_string(const Value& value) {
  return value.text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_number(const Value& value) {
  return number_of(value).has_value();
}
bool is_integer(const Value& value) {
  return value.get<Integer>() != nullptr;
}
bool is_float(const Value& value) {
  return value.get<double>() != nullptr;
}
bool is_boolean(const Value& value) {
  return value.get<bool>() != nullptr;
}
bool is_true(const Value& value) {
  return is_boolean(value) && *value.get<bool>();
}
bool is_false(const Value& value) {
  return is_boolean(value) && !*value.get<bool>();
}
bool is_callable(const Value& value) {
  return value.callable() || value.undefined();
}
bool is_escaped(const Value& value) {
  return value.text() && value.text()->safe;
}

// Whether Jinja sees the value as a sequence, that is, with a length and items. This includes
// dictionaries and undefined values.
bool is_sequence(const Value& value) {
  using enum Sequence::Kind;
  return value.text() || value.dict() || value.undefined() || value.is(list) || value.is(tuple) ||
         value.is(range);
}

template <bool (*holds)(std::string_view)>
Value case_test(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the test", arguments, {});
  return {holds(to_text(self, interpreter.budget()))};
}

Value remainder(Interpreter& interpreter, const Value& self, const Value& divisor) {
  return apply(Operator::modulo, self, divisor, interpreter.budget());
}

template <int rest>
Value halves(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the test", arguments, {});
  return {equal(remainder(interpreter, self, Value::integer(2)), Value::integer(rest),
                interpreter.budget())};
}

Value divisible_by(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("divisibleby", arguments, {"num"}, 1);
  return {equal(remainder(interpreter, self, given[0]), Value::integer(0), interpreter.budget())};
}

template <bool wanted>
Value equals(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the test", arguments, {"other"}, 1);
  return {equal(self, given[0], interpreter.budget()) == wanted};
}

enum class Order { less, less_equal, greater, greater_equal };

template <Order wanted>
Value ordered(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the test", arguments, {"other"}, 1);
  static constexpr const char* kSigns[] = {"<", "<=", ">", ">="};
  const auto order =
      compare(self, given[0], kSigns[static_cast<int>(wanted)], interpreter.budget());
  switch (wanted) {
    case Order::less:
      return {order < 0};
    case Order::less_equal:
      return {order <= 0};
    case Order::greater:
      return {order > 0};
    case Order::greater_equal:
      return {order >= 0};
  }
  return {};
}

Value is_in(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("in", arguments, {"seq"}, 1);
  return {contains(given[0], self, interpreter.budget())};
}

// Identity: the same object for shared values, equality for small values, which Python shares.
Value same_as(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("sameas", arguments, {"other"}, 1);
  const Value& other = given[0];
  if (self.sequence() || other.sequence()) return {self.sequence() == other.sequence()};
  if (self.dict() || other.dict()) return {self.dict() == other.dict()};
  if (std::string_view(self.type_name()) != other.type_name()) return {false};
  return {equal(self, other, interpreter.budget())};
}

template <const Entry* (*find)(std::string_view)>
Value is_known(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("the test", arguments, {});
  require_hashable(self);
  return {self.text() && find(self.text()->text)};
}

constexpr Entry kTests[] = {
    {"!=", equals<false>},
    {"<", ordered<Order::less>},
    {"<=", ordered<Order::less_equal>},
    {"==", equals<true>},
    {">", ordered<Order::greater>},
    {">=", ordered<Order::greater_equal>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", equals<true>},
    {"equalto", equals<true>},
    {"escaped", plain<is_escaped>},
    {"even", halves<0>},
    {"false", plain<is_false>},
    {"filter", is_known<find_filter>},
    {"float", plain<is_float>},
    {"ge", ordered<Order::greater_equal>},
    {"greaterthan", ordered<Order::greater>},
    {"gt", ordered<Order::greater>},
    {"in", is_in},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", ordered<Order::less_equal>},
    {"lessthan", ordered<Order::less>},
    {"lower", case_test<is_lower>},
    {"lt", ordered<Order::less>},
    {"mapping", plain<is_mapping>},
    {"ne", equals<false>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", halves<1>},
    {"sameas", same_as},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", is_known<find_test>},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", case_test<is_upper>},
};

}  // namespace

const Entry* find_test(std::string_view name) {
  return find_entry(kTests, name);
}

}  // namespace mgpu::text::jinja
