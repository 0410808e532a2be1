#include "runtime/text/jinja/access.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/loop.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

std::string described(const Value& value) {
  return value.is_none() ? "None" : fmt::format("{} object", value.type_name());
}

Value missing(const Value& value, const Value& index, Budget& budget) {
  if (const auto* name = index.text())
    return Value::undefined(
        fmt::format("'{}' has no attribute '{}'", described(value), name->text));
  return Value::undefined(
      fmt::format("{} has no element {}", described(value), represent(index, budget)));
}

const Value* namespace_attribute(const Namespace& space, std::string_view name) {
  for (const auto& [known, value] : space.attributes)
    if (known == name) return &value;
  return nullptr;
}

std::optional<Value> element(const Sequence& sequence, const Value& index) {
  using enum Sequence::Kind;
  if (sequence.kind != list && sequence.kind != tuple && sequence.kind != range) return {};
  const auto number = number_of(index);
  if (!number || number->real) return {};
  const auto size = static_cast<Integer>(sequence.items.size());
  const Integer at = number->whole < 0 ? number->whole + size : number->whole;
  if (at < 0 || at >= size) return {};
  return sequence.items[static_cast<std::size_t>(at)];
}

std::optional<Value> character(const Text& text, const Value& index, Budget& budget) {
  const auto number = number_of(index);
  if (!number || number->real) return {};
  budget.spend_bytes(text.text.size());
  const auto size = static_cast<Integer>(count_characters(text.text));
  const Integer at = number->whole < 0 ? number->whole + size : number->whole;
  if (at < 0 || at >= size) return {};
  const std::size_t byte = byte_of_character(text.text, static_cast<std::size_t>(at));
  return Value(text.text.substr(byte, character_at(text.text, byte).length), text.safe);
}

// value[index] as in Python.
std::optional<Value> own_item(const Value& value, const Value& index, Budget& budget) {
  if (const auto* dict = value.dict()) {
    if (index.dict() || index.is(Sequence::Kind::list)) return {};  // cannot be a key
    const Value* found = dict->find(index, budget);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (const auto* sequence = value.sequence()) return element(*sequence, index);
  if (const auto* text = value.text()) return character(*text, index, budget);
  return {};
}

// The positions that start:stop:step selects from `size` items, like Python's slice.indices.
Range bounds(std::size_t size, const Value& start, const Value& stop, Integer step) {
  const auto count = static_cast<Integer>(size);
  const Integer lowest = step < 0 ? -1 : 0, highest = step < 0 ? count - 1 : count;
  const auto bound = [&](const Value& given, Integer other) {
    if (given.is_none()) return other;
    const Integer at = number_of(given)->whole;
    return std::clamp(at < 0 ? at + count : at, lowest, highest);
  };
  return {bound(start, step < 0 ? highest : lowest), bound(stop, step < 0 ? lowest : highest),
          step};
}

std::vector<std::size_t> positions(const Range& range, Budget& budget) {
  std::vector<std::size_t> picked;
  for (Integer at = range.start; range.step < 0 ? at > range.stop : at < range.stop;
       at += range.step) {
    budget.spend(1);
    picked.push_back(static_cast<std::size_t>(at));
  }
  return picked;
}

bool is_bound(const Value& value) {
  const auto number = number_of(value);
  return value.is_none() || (number && !number->real);
}

Value slice_text(const Text& text, const std::vector<std::size_t>& picked,
                 const std::vector<std::string_view>& characters) {
  std::string out;
  for (const std::size_t at : picked) out += characters[at];
  return {std::move(out), text.safe};
}

}  // namespace

std::optional<Value> own_attribute(const Value& value, std::string_view name) {
  require_defined(value);
  if (name.size() > 1 && name.starts_with("__"))
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' is unsafe", name, described(value)));
  if (const auto* space = value.space()) {
    const Value* found = namespace_attribute(*space, name);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (auto* loop = value.loop()) return loop->attribute(name, value);
  if (const auto* method = find_method(value, name))
    return Value(Callable{method->name, method->function, value});
  if (changes_value(value, name))
    return Value::undefined(fmt::format(
        "access to attribute '{}' of '{}' is unsafe: values of a template do not change", name,
        described(value)));
  return {};
}

Value attribute_of(const Value& value, std::string_view name, Budget& budget) {
  budget.spend(1);
  // A key that is not also the name of a method is by far the most common case.
  if (auto found = own_attribute(value, name)) return *found;
  if (const auto* dict = value.dict()) {
    const Value* found = dict->find(name);
    if (found) return *found;
  }
  return missing(value, Value(name), budget);
}

Value item_of(const Value& value, const Value& index, Budget& budget) {
  budget.spend(1);
  require_defined(value);
  if (auto found = own_item(value, index, budget)) return *found;
  if (const auto* name = index.text())
    if (auto found = own_attribute(value, name->text)) return *found;
  return missing(value, index, budget);
}

Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step,
               Budget& budget) {
  require_defined(value);
  const auto* text = value.text();
  using Kind = Sequence::Kind;
  const bool sliced =
      text || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::range);
  if (!sliced) throw Failure(fmt::format("'{}' object is not subscriptable", value.type_name()));
  if (!is_bound(start) || !is_bound(stop) || !is_bound(step))
    throw Failure("slice indices must be integers or None");
  Integer by = 1;
  if (!step.is_none()) by = std::clamp<Integer>(number_of(step)->whole, -INT64_MAX, INT64_MAX);
  if (by == 0) throw Failure("slice step cannot be zero");
  if (text) {
    budget.spend_elements(text->text.size());
    const auto characters = split_characters(text->text);
    return slice_text(*text, positions(bounds(characters.size(), start, stop, by), budget),
                      characters);
  }
  const auto* sequence = value.sequence();
  const Range part = bounds(sequence->items.size(), start, stop, by);
  std::vector<Value> picked;
  for (const std::size_t at : positions(part, budget)) picked.push_back(sequence->items[at]);
  const auto& whole = sequence->range;
  return Value::sequence(std::move(picked), sequence->kind, budget,
                         {whole.start + part.start * whole.step,
                          whole.start + part.stop * whole.step, whole.step * by});
}

}  // namespace mgpu::text::jinja
