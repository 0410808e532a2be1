#include "runtime/text/jinja/eval.hpp"

#include <fmt/format.h>

#include "runtime/text/jinja/access.hpp"
#include "runtime/text/jinja/frames.hpp"
#include "runtime/text/jinja/lexer.hpp"

namespace mgpu::text::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->outer)
    for (const auto& [known, value] : scope->variables)
      if (known == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, held] : variables) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Result Interpreter::render(std::vector<std::pair<std::string_view, Value>> variables) {
  try {
    Scope root{.variables = std::move(variables)};
    scope_ = &root;
    execute(template_.body);
  } catch (const Failure& failure) {
    fail_at(line_, failure.what());
  }
  return std::move(result_);
}

Namespace& Interpreter::add_namespace() {
  budget_.spend_elements(4);
  namespaces_.push_back(std::make_unique<Namespace>());
  return *namespaces_.back();
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  const auto* callable = callee.callable();
  if (!callable) throw Failure(fmt::format("'{}' object is not callable", callee.type_name()));
  if (callable->macro) return call_macro(*callable->macro, arguments);
  const Depth depth(*this);
  budget_.spend(1);
  return callable->function(*this, callable->self, arguments);
}

Value Interpreter::filtered(const std::string& name, const Value& subject,
                            const Arguments& arguments) {
  const Depth depth(*this);
  budget_.spend(1);
  const auto* filter = find_filter(name);
  if (!filter) throw Failure(fmt::format("there is no filter '{}'", name));
  return filter->function(*this, subject, arguments);
}

bool Interpreter::tested(const std::string& name, const Value& subject,
                         const Arguments& arguments) {
  budget_.spend(1);
  const auto* test = find_test(name);
  if (!test) throw Failure(fmt::format("there is no test '{}'", name));
  return test->function(*this, subject, arguments).truth();
}

Value Interpreter::evaluate(const Expression& expression) {
  const Depth depth(*this);
  budget_.spend(1);
  line_ = expression.line;
  return std::visit([this](const auto& node) { return value_of(node); }, expression.node);
}

Value Interpreter::evaluate_or_none(const ExpressionPtr& expression) {
  return expression ? evaluate(*expression) : Value();
}

Value Interpreter::value_of(const Variable& node) {
  if (const Value* found = scope_->find(node.name)) return *found;
  if (const auto* global = find_global(node.name))
    return {Callable{global->name, global->function}};
  return Value::undefined(fmt::format("'{}' is undefined", node.name));
}

Value Interpreter::value_of(const Attribute& node) {
  return attribute_of(evaluate(*node.object), node.name, budget_);
}

Value Interpreter::value_of(const Item& node) {
  const Value object = evaluate(*node.object);
  return item_of(object, evaluate(*node.index), budget_);
}

Value Interpreter::value_of(const Slice& node) {
  const Value object = evaluate(*node.object);
  const Value start = evaluate_or_none(node.start), stop = evaluate_or_none(node.stop);
  return slice_of(object, start, stop, evaluate_or_none(node.step), budget_);
}

Arguments Interpreter::evaluate(const CallArguments& given) {
  Arguments arguments;
  for (const auto& each : given.positional) arguments.positional.push_back(evaluate(*each));
  for (const auto& [name, each] : given.named) arguments.named.emplace_back(name, evaluate(*each));
  if (given.more_positional) {
    const auto more = elements(evaluate(*given.more_positional), budget_);
    budget_.spend_elements(more->size());
    arguments.positional.insert(arguments.positional.end(), more->begin(), more->end());
  }
  if (given.more_named) {
    const Value more = evaluate(*given.more_named);
    require_defined(more);
    if (!more.dict()) throw Failure("argument after ** must be a mapping");
    budget_.spend_elements(more.dict()->entries().size());
    for (const auto& [name, value] : more.dict()->entries()) {
      if (!name.text()) throw Failure("keywords must be strings");
      arguments.named.emplace_back(name.text()->text, value);
    }
  }
  return arguments;
}

Value Interpreter::value_of(const Call& node) {
  const int line = line_;
  const Value callee = evaluate(*node.callee);
  const Arguments arguments = evaluate(node.arguments);
  line_ = line;
  return call(callee, arguments);
}

Value Interpreter::value_of(const Filtered& node) {
  const int line = line_;
  const Value subject = evaluate(*node.subject);
  const Arguments arguments = evaluate(node.arguments);
  line_ = line;
  return filtered(node.name, subject, arguments);
}

Value Interpreter::value_of(const Tested& node) {
  const Value subject = evaluate(*node.subject);
  return {tested(node.name, subject, evaluate(node.arguments))};
}

Value Interpreter::value_of(const ListDisplay& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& each : node.items) items.push_back(evaluate(*each));
  return Value::sequence(std::move(items),
                         node.tuple ? Sequence::Kind::tuple : Sequence::Kind::list, budget_);
}

Value Interpreter::value_of(const DictDisplay& node) {
  Dict dict;
  for (const auto& [key, value] : node.entries) {
    Value name = evaluate(*key);
    dict.set(std::move(name), evaluate(*value), budget_);
  }
  return {std::move(dict)};
}

Value Interpreter::value_of(const Binary& node) {
  const int line = line_;
  const Value left = evaluate(*node.left);
  const Value right = evaluate(*node.right);
  line_ = line;
  return apply(node.op, left, right, budget_);
}

Value Interpreter::value_of(const BooleanOperation& node) {
  Value left = evaluate(*node.left);
  return left.truth() == node.all ? evaluate(*node.right) : left;
}

Value Interpreter::value_of(const Concatenation& node) {
  std::string out;
  for (const auto& each : node.parts) out += to_text(evaluate(*each), budget_);
  budget_.spend_bytes(out.size());
  return {std::move(out)};
}

bool Interpreter::compare_with(Comparison how, const Value& left, const Value& right) {
  switch (how) {
    case Comparison::equal:
      return equal(left, right, budget_);
    case Comparison::unequal:
      return !equal(left, right, budget_);
    case Comparison::less:
      return compare(left, right, "<", budget_) < 0;
    case Comparison::less_equal:
      return compare(left, right, "<=", budget_) <= 0;
    case Comparison::greater:
      return compare(left, right, ">", budget_) > 0;
    case Comparison::greater_equal:
      return compare(left, right, ">=", budget_) >= 0;
    case Comparison::in:
      return contains(right, left, budget_);
    case Comparison::not_in:
      return !contains(right, left, budget_);
  }
  return false;
}

Value Interpreter::value_of(const Compared& node) {
  const int line = line_;
  Value left = evaluate(*node.first);
  for (const auto& [how, expression] : node.rest) {
    Value right = evaluate(*expression);
    line_ = line;
    if (!compare_with(how, left, right)) return {false};
    left = std::move(right);
  }
  return {true};
}

Value Interpreter::value_of(const Conditional& node) {
  if (evaluate(*node.test).truth()) return evaluate(*node.yes);
  if (node.no) return evaluate(*node.no);
  return Value::undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined",
      line_));
}

}  // namespace mgpu::text::jinja
