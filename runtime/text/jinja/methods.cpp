#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/text/jinja/access.hpp"
#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text_methods.hpp"

namespace mgpu::text::jinja {

namespace {

Value index_of(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("index", arguments, {"value"}, 1);
  const auto& items = self.sequence()->items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], given[0], interpreter.budget())) return Value::integer(i);
  throw Failure(
      fmt::format("{} is not in {}", represent(given[0], interpreter.budget()), self.type_name()));
}

Value count_of(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("count", arguments, {"value"}, 1);
  const auto& items = self.sequence()->items;
  return Value::integer(
      static_cast<std::size_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
        return equal(item, given[0], interpreter.budget());
      })));
}

Value same(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("copy", arguments, {});
  return self;
}

Value get(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("get", arguments, {"key", "default"}, 1);
  const Value* found = self.dict()->find(given[0], interpreter.budget());
  return found ? *found : given.at_or(1, Value());
}

Value view(Interpreter& interpreter, const Value& self, const Arguments& arguments,
           const char* name, Sequence::Kind kind) {
  const Parameters given(name, arguments, {});
  auto& budget = interpreter.budget();
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries()) {
    if (kind == Sequence::Kind::items)
      items.push_back(Value::sequence({key, value}, Sequence::Kind::tuple, budget));
    else
      items.push_back(kind == Sequence::Kind::keys ? key : value);
  }
  return Value::sequence(std::move(items), kind, budget);
}

Value dict_keys(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return view(interpreter, self, arguments, "keys", Sequence::Kind::keys);
}
Value dict_values(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return view(interpreter, self, arguments, "values", Sequence::Kind::values);
}
Value dict_items(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return view(interpreter, self, arguments, "items", Sequence::Kind::items);
}

Value is_whole(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("is_integer", arguments, {});
  const double value = *self.get<double>();
  return {value == static_cast<double>(static_cast<std::int64_t>(value)) || value >= 1e15 ||
          value <= -1e15};
}

constexpr Method kListMethods[] = {{"copy", same}, {"count", count_of}, {"index", index_of}};
constexpr Method kDictMethods[] = {{"copy", same},
                                   {"get", get},
                                   {"items", dict_items},
                                   {"keys", dict_keys},
                                   {"values", dict_values}};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr Method kRealMethods[] = {{"is_integer", is_whole}};

template <std::size_t Size>
const Method* find_in(const Method (&methods)[Size], std::string_view name) {
  const auto* found = std::find_if(methods, methods + Size,
                                   [name](const Method& method) { return method.name == name; });
  return found == methods + Size ? nullptr : found;
}

}  // namespace

const Method* find_method(const Value& value, std::string_view name) {
  if (value.dict()) return find_in(kDictMethods, name);
  if (value.text()) return find_text_method(name);
  if (value.get<double>()) return find_in(kRealMethods, name);
  if (value.is(Sequence::Kind::list)) return find_in(kListMethods, name);
  if (value.is(Sequence::Kind::tuple) || value.is(Sequence::Kind::range)) {
    const auto* method = find_in(kListMethods, name);
    return method && method->function == same ? nullptr : method;
  }
  return nullptr;
}

bool changes_value(const Value& value, std::string_view name) {
  const auto is = [name](std::string_view other) { return other == name; };
  if (value.dict()) return std::any_of(std::begin(kDictChanges), std::end(kDictChanges), is);
  return value.is(Sequence::Kind::list) &&
         std::any_of(std::begin(kListChanges), std::end(kListChanges), is);
}

}  // namespace mgpu::text::jinja
