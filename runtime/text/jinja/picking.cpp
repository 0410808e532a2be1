#include "runtime/text/jinja/picking.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/access.hpp"
#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

Value path_part(std::string_view part) {
  const bool digits =
      !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
  return digits ? Value::integer(std::stoul(std::string(part))) : Value(part);
}

// Sorts pairs of key and value by key, like Python: stable, also in reverse order.
void sort_by_key(std::vector<std::pair<Value, Value>>& pairs, bool reverse, Budget& budget) {
  std::stable_sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first, "<", budget) < 0
                   : compare(a.first, b.first, "<", budget) < 0;
  });
}

std::vector<std::pair<Value, Value>> keyed(const Value& values, const SortKey& key,
                                           Budget& budget) {
  std::vector<std::pair<Value, Value>> pairs;
  const auto all = elements(values, budget);
  for (const auto& item : *all) pairs.emplace_back(key.of(item, budget), item);
  return pairs;
}

// A false value counts as having no elements, even if it is not iterable.
Elements elements_if_true(const Value& value, Budget& budget) {
  return elements(value.truth() ? value : Value::list({}, budget), budget);
}

const Value& required(const Arguments& arguments, std::size_t index, const char* what) {
  if (arguments.positional.size() <= index)
    throw Failure(fmt::format("{} is missing among the filter's arguments", what));
  return arguments.positional[index];
}

// One key for each of the attributes that commas separate.
std::vector<SortKey> sort_keys(const Value& attributes, bool case_sensitive) {
  std::vector<SortKey> keys;
  if (!attributes.text()) return {{attributes, case_sensitive}};
  std::string_view left = attributes.text()->text;
  while (true) {
    const std::size_t comma = std::min(left.find(','), left.size());
    keys.push_back({Value(left.substr(0, comma)), case_sensitive});
    if (comma == left.size()) return keys;
    left.remove_prefix(comma + 1);
  }
}

const std::string& name_of(const Value& value) {
  if (!value.text()) throw Failure("the name of a filter or test is a text");
  return value.text()->text;
}

}  // namespace

Value path_of(const Value& item, const Value& path, Budget& budget, const Value* other) {
  const auto step = [&](const Value& from, const Value& index) {
    Value to = item_of(from, index, budget);
    return to.undefined() && other ? *other : to;
  };
  if (!path.text()) return step(item, path);
  std::string_view left = path.text()->text;
  Value value = item;
  while (true) {
    const std::size_t dot = std::min(left.find('.'), left.size());
    value = step(value, path_part(left.substr(0, dot)));
    if (dot == left.size()) return value;
    left.remove_prefix(dot + 1);
  }
}

Value SortKey::of(const Value& item, Budget& budget) const {
  const Value key = attribute.is_none() ? item : path_of(item, attribute, budget);
  if (case_sensitive || !key.text()) return key;
  budget.spend_bytes(key.text()->text.size() * 4);
  return {lower(key.text()->text)};
}

Value attribute_filter(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("attr", arguments, {"name"}, 1);
  const auto found = own_attribute(self, name_of(given[0]));
  return found ? *found
               : Value::undefined(fmt::format("'{} object' has no attribute '{}'", self.type_name(),
                                              given[0].text()->text));
}

Value map(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  auto& budget = interpreter.budget();
  std::vector<Value> mapped;
  const auto all = elements_if_true(self, budget);
  if (arguments.positional.empty() && !arguments.named.empty()) {
    const Parameters given("map", arguments, {"attribute", "default"}, 1);
    for (const auto& item : *all) {
      const bool has_default = given.has(1) && !given[1].is_none();
      mapped.push_back(path_of(item, given[0], budget, has_default ? &given[1] : nullptr));
    }
  } else {
    const std::string name = name_of(required(arguments, 0, "the filter to map"));
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    for (const auto& item : *all) mapped.push_back(interpreter.filtered(name, item, rest));
  }
  return Value::sequence(std::move(mapped), Sequence::Kind::generator, budget);
}

template <bool wanted, bool by_attribute>
Value pick(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  auto& budget = interpreter.budget();
  Arguments rest = arguments;
  Value path;
  if (by_attribute) {
    path = required(arguments, 0, "the attribute");
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = name_of(rest.positional.front());
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> picked;
  const auto all = elements_if_true(self, budget);
  for (const auto& item : *all) {
    const Value tested = by_attribute ? path_of(item, path, budget) : item;
    const bool holds = test.empty() ? tested.truth() : interpreter.tested(test, tested, rest);
    if (holds == wanted) picked.push_back(item);
  }
  return Value::sequence(std::move(picked), Sequence::Kind::generator, budget);
}
template Value pick<false, false>(Interpreter&, const Value&, const Arguments&);
template Value pick<false, true>(Interpreter&, const Value&, const Arguments&);
template Value pick<true, false>(Interpreter&, const Value&, const Arguments&);
template Value pick<true, true>(Interpreter&, const Value&, const Arguments&);

Value sort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  auto& budget = interpreter.budget();
  const auto keys = sort_keys(given.at_or(2, Value()), given.flag(1, false));
  const auto all = elements(self, budget);
  std::vector<std::pair<Value, Value>> pairs;
  for (const auto& item : *all) {
    std::vector<Value> parts;
    for (const auto& key : keys) parts.push_back(key.of(item, budget));
    pairs.emplace_back(Value::list(std::move(parts), budget), item);
  }
  sort_by_key(pairs, given.flag(0, false), budget);
  std::vector<Value> sorted;
  for (auto& [key, item] : pairs) sorted.push_back(std::move(item));
  return Value::list(std::move(sorted), budget);
}

Value dict_sort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  auto& budget = interpreter.budget();
  require_defined(self);
  if (!self.dict())
    throw Failure(fmt::format("'{}' object has no attribute 'items'", self.type_name()));
  const std::string by = given.has(1) ? name_of(given[1]) : "key";
  if (by != "key" && by != "value")
    throw Failure("You can only sort by either \"key\" or \"value\"");
  const SortKey key{Value(), given.flag(0, false)};
  std::vector<std::pair<Value, Value>> pairs;
  for (const auto& [name, value] : self.dict()->entries())
    pairs.emplace_back(key.of(by == "key" ? name : value, budget),
                       Value::sequence({name, value}, Sequence::Kind::tuple, budget));
  sort_by_key(pairs, given.flag(2, false), budget);
  std::vector<Value> sorted;
  for (auto& [ignored, item] : pairs) sorted.push_back(std::move(item));
  return Value::list(std::move(sorted), budget);
}

Value group_by(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  if (given.has(1)) throw Failure("groupby's default is not supported");
  auto& budget = interpreter.budget();
  auto pairs = keyed(self, {given[0], given.flag(2, false)}, budget);
  sort_by_key(pairs, false, budget);
  std::vector<Value> groups, group;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    group.push_back(pairs[i].second);
    if (i + 1 < pairs.size() && equal(pairs[i].first, pairs[i + 1].first, budget)) continue;
    const Value name = path_of(group.front(), given[0], budget);
    groups.push_back(Value::sequence({name, Value::list(std::exchange(group, {}), budget)},
                                     Sequence::Kind::tuple, budget));
  }
  return Value::list(std::move(groups), budget);
}

template <bool largest>
Value extreme(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("max", arguments, {"case_sensitive", "attribute"});
  auto& budget = interpreter.budget();
  const auto pairs = keyed(self, {given.at_or(1, Value()), given.flag(0, false)}, budget);
  if (pairs.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto* best = &pairs.front();
  for (const auto& pair : pairs) {
    const auto order = compare(pair.first, best->first, largest ? ">" : "<", budget);
    if (largest ? order > 0 : order < 0) best = &pair;
  }
  return best->second;
}
template Value extreme<false>(Interpreter&, const Value&, const Arguments&);
template Value extreme<true>(Interpreter&, const Value&, const Arguments&);

}  // namespace mgpu::text::jinja
