#include "runtime/text/jinja/value.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/operators.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr std::size_t kFewKeys = 16;
constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

bool is_hashable(const Value& value) {
  using enum Sequence::Kind;
  if (value.is(list) || value.is(keys) || value.is(Sequence::Kind::items) || value.dict())
    return false;
  if (!value.is(tuple)) return true;
  const auto& parts = value.sequence()->items;
  return std::all_of(parts.begin(), parts.end(), is_hashable);
}

}  // namespace

int check_depth(int depth) {
  constexpr int kDeepest = 256;
  if (depth > kDeepest) throw Failure(fmt::format("values are nested more than {} deep", kDeepest));
  return depth;
}

void Budget::exhausted() const {
  throw Failure(fmt::format(
      "the template does more than {} steps of work; is there a loop that grows?", all_));
}

Value::Value(std::string text, bool safe)
    : storage_(std::make_shared<const Text>(Text{std::move(text), safe})) {}

Value::Value(Dict dict) : storage_(std::make_shared<const Dict>(std::move(dict))) {}

Value::Value(Callable callable) : storage_(std::make_shared<const Callable>(std::move(callable))) {}

Value Value::undefined(std::string why) {
  Value value;
  value.storage_ = std::make_shared<const Undefined>(Undefined{std::move(why)});
  return value;
}

Value Value::sequence(std::vector<Value> items, Sequence::Kind kind, Budget& budget, Range range) {
  budget.spend_elements(items.size() + 1);
  int depth = 0;
  for (const auto& item : items) depth = std::max(depth, item.depth());
  Value value;
  value.storage_ = std::make_shared<Sequence>(
      Sequence{kind, std::move(items), 0, range, check_depth(depth + 1)});
  return value;
}

int Value::depth() const {
  if (const auto* held = sequence()) return held->depth;
  if (const auto* held = dict()) return held->depth();
  if (const auto* held = callable()) return held->self.depth() + 1;
  return 0;
}

bool Value::truth() const {
  if (undefined() || is_none()) return false;
  if (const auto* held = get<bool>()) return *held;
  if (const auto* held = get<Integer>()) return *held != 0;
  if (const auto* held = get<double>()) return *held != 0;
  if (const auto* held = text()) return !held->text.empty();
  if (const auto* held = dict()) return !held->entries().empty();
  if (const auto* held = sequence())
    return held->kind == Sequence::Kind::generator || !held->items.empty();
  return true;
}

const char* Value::type_name() const {
  if (undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (get<bool>()) return "bool";
  if (get<Integer>()) return "int";
  if (get<double>()) return "float";
  if (const auto* held = text()) return held->safe ? "Markup" : "str";
  if (dict()) return "dict";
  if (space()) return "Namespace";
  if (loop()) return "LoopContext";
  if (callable()) return callable()->macro ? "Macro" : "function";
  static const char* const kNames[] = {"list",      "tuple",       "range",     "generator",
                                       "dict_keys", "dict_values", "dict_items"};
  return kNames[static_cast<int>(sequence()->kind)];
}

std::size_t Dict::position(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? kNowhere : found->second;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (const auto* held = entries_[i].first.text(); held && held->text == key) return i;
  return kNowhere;
}

const Value* Dict::find(std::string_view key) const {
  const std::size_t at = position(key);
  return at == kNowhere ? nullptr : &entries_[at].second;
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  if (const auto* text = key.text()) {
    budget.spend(text->text.size() / 16);
    return find(text->text);
  }
  require_hashable(key);
  for (const auto& [known, value] : entries_)
    if (equal(known, key, budget)) return &value;
  return nullptr;
}

void Dict::set(Value key, Value value, Budget& budget) {
  budget.spend_elements(2);
  depth_ = check_depth(std::max({depth_, key.depth() + 1, value.depth() + 1}));
  if (const Value* known = find(key, budget)) {
    const_cast<Value&>(*known) = std::move(value);  // one of our own entries
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  const auto index = [this](std::size_t i) {
    if (const auto* text = entries_[i].first.text()) index_.emplace(text->text, i);
  };
  if (entries_.size() == kFewKeys)
    for (std::size_t i = 0; i < kFewKeys; ++i) index(i);
  else if (entries_.size() > kFewKeys)
    index(entries_.size() - 1);
}

void require_hashable(const Value& value) {
  if (!is_hashable(value)) throw Failure(fmt::format("unhashable type: '{}'", value.type_name()));
}

void require_defined(const Value& value) {
  if (const auto* undefined = value.undefined()) throw Failure(undefined->why);
}

}  // namespace mgpu::text::jinja
