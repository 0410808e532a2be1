#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/library.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/picking.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

Value generator(std::vector<Value> items, Interpreter& interpreter) {
  return Value::sequence(std::move(items), Sequence::Kind::generator, interpreter.budget());
}

Value length_of(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("length", arguments, {});
  const auto found = length(self, interpreter.budget());
  if (!found) throw Failure(fmt::format("object of type '{}' has no len()", self.type_name()));
  return Value::integer(*found);
}

Value or_default(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("default", arguments, {"default_value", "boolean"});
  const bool use = self.undefined() || (given.flag(1, false) && !self.truth());
  return use ? given.at_or(0, Value("")) : self;
}

Value first(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("first", arguments, {});
  if (auto* made = self.sequence(); made && made->kind == Sequence::Kind::generator)
    return made->next < made->items.size() ? made->items[made->next++]
                                           : Value::undefined("there is no first item");
  const auto items = elements(self, interpreter.budget());
  return items->empty() ? Value::undefined("there is no first item") : items->front();
}

Value last(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("last", arguments, {});
  if (self.is(Sequence::Kind::generator)) throw Failure("'generator' object is not reversible");
  const auto items = elements(self, interpreter.budget());
  return items->empty() ? Value::undefined("there is no last item") : items->back();
}

Value list(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("list", arguments, {});
  return Value::list(*elements(self, interpreter.budget()), interpreter.budget());
}

Value items_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("items", arguments, {});
  if (self.undefined()) return generator({}, interpreter);
  if (!self.dict()) throw Failure("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict()->entries())
    pairs.push_back(Value::sequence({key, value}, Sequence::Kind::tuple, interpreter.budget()));
  return generator(std::move(pairs), interpreter);
}

Value join_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("join", arguments, {"d", "attribute"});
  auto& budget = interpreter.budget();
  const std::string separator = given.has(0) ? to_text(given[0], budget) : "";
  const bool by_attribute = given.has(1) && !given[1].is_none();
  std::string out;
  bool begun = false;
  const auto all = elements(self, budget);
  for (const auto& item : *all) {
    if (begun) out += separator;
    begun = true;
    budget.spend_bytes(separator.size());
    out += to_text(by_attribute ? path_of(item, given[1], budget) : item, budget);
  }
  return {std::move(out)};
}

Value reverse(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("reverse", arguments, {});
  auto reversed = *elements(self, interpreter.budget());
  std::reverse(reversed.begin(), reversed.end());
  if (!self.text()) return generator(std::move(reversed), interpreter);
  std::string out;
  for (const auto& character : reversed) out += character.text()->text;
  return {std::move(out), self.text()->safe};
}

Value unique(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("unique", arguments, {"case_sensitive", "attribute"});
  auto& budget = interpreter.budget();
  const SortKey key{given.at_or(1, Value()), given.flag(0, false)};
  std::vector<Value> seen, kept;
  const auto all = elements(self, budget);
  for (const auto& item : *all) {
    const Value compared = key.of(item, budget);
    require_hashable(compared);
    if (std::any_of(seen.begin(), seen.end(),
                    [&](const Value& other) { return equal(other, compared, budget); }))
      continue;
    seen.push_back(compared);
    kept.push_back(item);
  }
  return generator(std::move(kept), interpreter);
}

Value sum(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("sum", arguments, {"attribute", "start"});
  auto& budget = interpreter.budget();
  Value total = given.at_or(1, Value::integer(0));
  if (total.text()) throw Failure("sum() can't sum strings [use ''.join(seq) instead]");
  const bool by_attribute = given.has(0) && !given[0].is_none();
  const auto all = elements(self, budget);
  for (const auto& item : *all)
    total =
        apply(Operator::add, total, by_attribute ? path_of(item, given[0], budget) : item, budget);
  return total;
}

Value batch(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("batch", arguments, {"linecount", "fill_with"}, 1);
  auto& budget = interpreter.budget();
  const Integer size = whole_number(given[0], "batch's linecount");
  if (size < 1) throw Failure("batch's linecount must be positive");
  std::vector<Value> rows, row;
  const auto all = elements(self, budget);
  for (const auto& item : *all) {
    if (static_cast<Integer>(row.size()) == size)
      rows.push_back(Value::list(std::exchange(row, {}), budget));
    row.push_back(item);
  }
  if (!row.empty()) {
    while (given.has(1) && !given[1].is_none() && static_cast<Integer>(row.size()) < size) {
      budget.spend_elements(1);
      row.push_back(given[1]);
    }
    rows.push_back(Value::list(std::move(row), budget));
  }
  return generator(std::move(rows), interpreter);
}

Value slices(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("slice", arguments, {"slices", "fill_with"}, 1);
  auto& budget = interpreter.budget();
  const Integer wanted = whole_number(given[0], "slice's number of slices");
  if (wanted < 1) throw Failure("slice's number of slices must be positive");
  const auto all = elements(self, budget);
  const auto whole = static_cast<Integer>(all->size());
  std::vector<Value> rows;
  std::size_t at = 0;
  constexpr std::size_t kStepsPerRow = 6;  // an empty list takes about as much memory as 3 elements
  for (Integer i = 0; i < wanted; ++i) {
    budget.spend(kStepsPerRow);
    const bool longer = i < whole % wanted;
    const auto count = static_cast<std::size_t>(whole / wanted + (longer ? 1 : 0));
    std::vector<Value> row(all->begin() + static_cast<std::ptrdiff_t>(at),
                           all->begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    if (given.has(1) && !given[1].is_none() && !longer) row.push_back(given[1]);
    rows.push_back(Value::list(std::move(row), budget));
  }
  return generator(std::move(rows), interpreter);
}

constexpr Entry kListFilters[] = {
    {"attr", attribute_filter},
    {"batch", batch},
    {"count", length_of},
    {"d", or_default},
    {"default", or_default},
    {"dictsort", dict_sort},
    {"first", first},
    {"groupby", group_by},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last},
    {"length", length_of},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", pick<false, false>},
    {"rejectattr", pick<false, true>},
    {"reverse", reverse},
    {"select", pick<true, false>},
    {"selectattr", pick<true, true>},
    {"slice", slices},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

const Entry* find_list_filter(std::string_view name) {
  return find_entry(kListFilters, name);
}

}  // namespace mgpu::text::jinja
