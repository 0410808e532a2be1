#include "runtime/text/jinja/loop.hpp"

#include <limits>

#include "runtime/text/jinja/eval.hpp"

namespace mgpu::text::jinja {

namespace {

Value cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) throw Failure("no items for cycling given");
  return arguments.positional[self.loop()->index() % arguments.positional.size()];
}

Value has_changed(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return {self.loop()->changed(arguments.positional, interpreter.budget())};
}

}  // namespace

bool Loop::reach(std::size_t index) {
  if (!condition_) return index < elements_->size();
  while (admitted_.size() <= index && looked_at_ < elements_->size()) {
    const std::size_t position = looked_at_++;
    if (condition_((*elements_)[position])) admitted_.push_back(position);
  }
  return index < admitted_.size();
}

const Value* Loop::at(std::size_t index) const {
  return &(*elements_)[condition_ ? admitted_[index] : index];
}

bool Loop::advance() {
  return reach(++index_);
}

std::size_t Loop::length() {
  if (!condition_) return elements_->size();
  reach(std::numeric_limits<std::size_t>::max() - 1);
  return admitted_.size();
}

void Loop::finish() {
  last_changed_.reset();
  if (!condition_) return;
  std::vector<Value> kept;
  for (const std::size_t position : admitted_) kept.push_back((*elements_)[position]);
  elements_ = std::make_shared<const std::vector<Value>>(std::move(kept));
  condition_ = nullptr;
}

bool Loop::changed(const std::vector<Value>& values, Budget& budget) {
  bool same = last_changed_ && last_changed_->size() == values.size();
  for (std::size_t i = 0; same && i < values.size(); ++i)
    same = equal((*last_changed_)[i], values[i], budget);
  if (!same) last_changed_ = values;
  return !same;
}

std::optional<Value> Loop::attribute(std::string_view name, const Value& self) {
  if (name == "index") return Value::integer(index_ + 1);
  if (name == "index0") return Value::integer(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(!reach(index_ + 1));
  if (name == "length") return Value::integer(length());
  if (name == "revindex")
    return Value(static_cast<Integer>(length()) - static_cast<Integer>(index_));
  if (name == "revindex0")
    return Value(static_cast<Integer>(length()) - static_cast<Integer>(index_) - 1);
  if (name == "depth") return Value::integer(1);  // only recursive loops are deeper
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return index_ == 0 ? Value::undefined("there is no previous item") : *at(index_ - 1);
  if (name == "nextitem")
    return reach(index_ + 1) ? *at(index_ + 1) : Value::undefined("there is no next item");
  if (name == "cycle") return Value(Callable{"cycle", cycle, self});
  if (name == "changed") return Value(Callable{"changed", has_changed, self});
  return {};
}

}  // namespace mgpu::text::jinja
