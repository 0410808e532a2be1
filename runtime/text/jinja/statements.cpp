#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/frames.hpp"
#include "runtime/text/jinja/loop.hpp"

namespace mgpu::text::jinja {

void Interpreter::emit(std::string_view text) {
  budget_.spend_bytes(text.size());
  if (text.size() > limits_.output || out_->size() > limits_.output - text.size())
    throw Failure(fmt::format("the template writes more than {} bytes", limits_.output));
  out_->append(text);
}

std::string Interpreter::captured(const Body& body) {
  Capture capture(*this);
  execute(body);
  return std::move(capture.text);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Depth depth(*this);
  for (const auto& statement : body) {
    budget_.spend(1);
    line_ = statement->line;
    const Flow flow =
        std::visit([this](const auto& node) { return execute(node); }, statement->node);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Output& node) {
  emit(node.text);
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Print& node) {
  const Value value = evaluate(*node.value);
  if (const auto* text = value.text())
    emit(text->text);
  else
    emit(to_text(value, budget_));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const If& node) {
  for (const auto& branch : node.branches)
    if (!branch.test || evaluate(*branch.test).truth()) return execute(branch.body);
  return Flow::next;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const auto items = elements(value, budget_);
    if (items->size() != target.parts.size())
      throw Failure(fmt::format("{} values cannot be unpacked into {} names", items->size(),
                                target.parts.size()));
    for (std::size_t i = 0; i < items->size(); ++i) assign(target.parts[i], (*items)[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value);
    return;
  }
  const Value* found = scope_->find(target.name);
  if (!found || !found->space())
    throw Failure(fmt::format("cannot assign attribute '{}': '{}' is no namespace",
                              target.attribute, target.name));
  auto& attributes = found->space()->attributes;
  const auto known = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const auto& each) { return each.first == target.attribute; });
  if (known != attributes.end())
    known->second = value;
  else
    attributes.emplace_back(target.attribute, value);
}

// Runs the body for each element. Returns whether there was any.
bool Interpreter::iterate(const For& node, Loop& loop, const Value& shown) {
  Scope* const outer = scope_;
  bool any = false;
  while (loop.advance()) {
    budget_.spend(4);
    const NewScope scope(*this, outer);
    assign(node.target, loop.current());
    scope_->set("loop", shown);
    any = true;
    if (execute(node.body) == Flow::breaks) break;
  }
  return any;
}

Interpreter::Flow Interpreter::execute(const For& node) {
  const auto items = elements(evaluate(*node.elements), budget_);
  Scope* const outer = scope_;
  Loop::Condition condition;
  if (node.condition)
    condition = [this, outer, &node](const Value& item) {
      const NewScope scope(*this, outer);
      assign(node.target, item);
      return evaluate(*node.condition).truth();
    };
  const auto loop = std::make_shared<Loop>(items, std::move(condition));
  struct Finish {
    Loop& loop;
    ~Finish() { loop.finish(); }
  } const finish{*loop};
  const bool any = iterate(node, *loop, Value(loop));
  if (any) return Flow::next;
  const NewScope scope(*this, outer);
  return execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const SetBlock& node) {
  Value text;
  {
    const NewScope scope(*this, scope_);
    text = Value(captured(node.body));
  }
  const Value outer = std::exchange(block_text_, text);
  const Value value = evaluate(*node.value);
  block_text_ = outer;
  assign(node.target, value);
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const FilterBlock& node) {
  Value text;
  {
    const NewScope scope(*this, scope_);
    text = Value(captured(node.body));
  }
  const Value outer = std::exchange(block_text_, text);
  emit(to_text(evaluate(*node.value), budget_));
  block_text_ = outer;
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const With& node) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.variables) values.push_back(evaluate(*value));
  const NewScope scope(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.variables[i].first, values[i]);
  return execute(node.body);
}

Interpreter::Flow Interpreter::execute(const Generation& node) {
  const NewScope scope(*this, scope_);
  const bool outermost = !std::exchange(in_generation_, true);
  const std::size_t begin = out_->size();
  execute(node.body);
  if (outermost) {
    in_generation_ = false;
    if (out_ == &result_.text)
      result_.generation.emplace_back(begin, out_->size());
    else
      result_.misplaced_generation = true;
  }
  return Flow::next;
}

}  // namespace mgpu::text::jinja
