#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

std::partial_ordering compare_numbers(const Number& a, const Number& b) {
  if (!a.real && !b.real) return a.whole <=> b.whole;
  return a.as_double() <=> b.as_double();
}

bool equal_items(const std::vector<Value>& left, const std::vector<Value>& right, Budget& budget) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!equal(left[i], right[i], budget)) return false;
  return true;
}

bool equal_dicts(const Dict& left, const Dict& right, Budget& budget) {
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.find(key, budget);
    if (!other || !equal(value, *other, budget)) return false;
  }
  return true;
}

bool same_order(const Sequence& left, const Sequence& right) {
  using enum Sequence::Kind;
  return left.kind == right.kind && (left.kind == list || left.kind == tuple);
}

}  // namespace

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.spend(1);
  const auto a = number_of(left), b = number_of(right);
  if (a || b) return a && b && compare_numbers(*a, *b) == 0;
  if (const auto *one = left.text(), *two = right.text(); one && two) {
    if (one->text.size() != two->text.size()) return false;
    budget.spend(one->text.size() / 16);
    return one->text == two->text;
  }
  if (left.dict() && right.dict()) return equal_dicts(*left.dict(), *right.dict(), budget);
  if (const auto *one = left.sequence(), *two = right.sequence(); one && two) {
    if (one == two) return true;
    using enum Sequence::Kind;
    const bool by_items = one->kind == list || one->kind == tuple || one->kind == range;
    return one->kind == two->kind && by_items && equal_items(one->items, two->items, budget);
  }
  if (left.space() || right.space()) return left.space() == right.space();
  if (left.loop() || right.loop()) return left.loop() == right.loop();
  if (left.callable() || right.callable()) return left.callable() == right.callable();
  return (left.is_none() && right.is_none()) || (left.undefined() && right.undefined());
}

std::partial_ordering compare(const Value& left, const Value& right, std::string_view op,
                              Budget& budget) {
  budget.spend(1);
  const auto a = number_of(left), b = number_of(right);
  if (a && b) return compare_numbers(*a, *b);
  if (const auto *one = left.text(), *two = right.text(); one && two) {
    budget.spend(std::min(one->text.size(), two->text.size()) / 16);
    return one->text.compare(two->text) <=> 0;
  }
  if (const auto *one = left.sequence(), *two = right.sequence();
      one && two && same_order(*one, *two)) {
    for (std::size_t i = 0; i < std::min(one->items.size(), two->items.size()); ++i)
      if (!equal(one->items[i], two->items[i], budget))
        return compare(one->items[i], two->items[i], op, budget);
    return one->items.size() <=> two->items.size();
  }
  require_defined(left);
  require_defined(right);
  throw Failure(fmt::format("'{}' not supported between instances of '{}' and '{}'", op,
                            left.type_name(), right.type_name()));
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const auto* text = container.text()) {
    const auto* part = item.text();
    if (!part)
      throw Failure(
          fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    budget.spend_bytes(text->text.size());
    return find_text(text->text, part->text) != text->text.npos;
  }
  if (const auto* dict = container.dict()) return dict->find(item, budget) != nullptr;
  if (!is_iterable(container))
    throw Failure(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  if (auto* generator = container.sequence();
      generator && generator->kind == Sequence::Kind::generator) {
    while (generator->next < generator->items.size())
      if (equal(generator->items[generator->next++], item, budget)) return true;
    return false;
  }
  const auto items = elements(container, budget);
  return std::any_of(items->begin(), items->end(),
                     [&](const Value& each) { return equal(each, item, budget); });
}

bool is_iterable(const Value& value) {
  return value.text() || value.sequence() || value.dict() || value.undefined();
}

Elements elements(const Value& value, Budget& budget) {
  budget.spend(1);
  auto own = std::make_shared<std::vector<Value>>();
  if (const auto* shared = value.get<Value::Shared>()) {
    if ((*shared)->kind != Sequence::Kind::generator) return {*shared, &(*shared)->items};
    auto& next = (*shared)->next;
    budget.spend_elements((*shared)->items.size() - next);
    own->assign((*shared)->items.begin() + static_cast<std::ptrdiff_t>(next),
                (*shared)->items.end());
    next = (*shared)->items.size();
  } else if (const auto* text = value.text()) {
    budget.spend_elements(text->text.size() * 2);
    for (const auto character : split_characters(text->text))
      own->emplace_back(std::string(character));
  } else if (const auto* dict = value.dict()) {
    budget.spend_elements(dict->entries().size());
    for (const auto& [key, ignored] : dict->entries()) own->push_back(key);
  } else if (!value.undefined()) {
    throw Failure(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return own;
}

std::optional<std::size_t> length(const Value& value, Budget& budget) {
  if (const auto* text = value.text()) {
    budget.spend(text->text.size() / 16);
    return count_characters(text->text);
  }
  if (const auto* dict = value.dict()) return dict->entries().size();
  if (value.undefined()) return 0;
  if (const auto* held = value.sequence(); held && held->kind != Sequence::Kind::generator)
    return held->items.size();
  return std::nullopt;
}

}  // namespace mgpu::text::jinja
