#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/frames.hpp"

namespace mgpu::text::jinja {

Value Interpreter::make_macro(const MacroDefinition& definition) {
  for (Scope* scope = scope_; scope && !scope->kept; scope = scope->outer) scope->kept = true;
  macros_.push_back(std::make_unique<Macro>(Macro{&definition, scope_}));
  budget_.spend_elements(2);
  return {Callable{.name = definition.name, .macro = macros_.back().get()}};
}

Interpreter::Flow Interpreter::execute(const MacroDefinition& node) {
  scope_->set(node.name, make_macro(node));
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const CallBlock& node) {
  const auto& called = std::get<Call>(node.call->node);
  const Value callee = evaluate(*called.callee);
  Arguments arguments = evaluate(called.arguments);
  arguments.named.emplace_back("caller", make_macro(node.caller));
  emit(to_text(call(callee, arguments), budget_));
  return Flow::next;
}

void Interpreter::bind_parameters(const MacroDefinition& macro, const Arguments& arguments) {
  const auto& parameters = macro.parameters;
  std::vector<const Value*> given(parameters.size(), nullptr);
  const std::size_t positional = std::min(parameters.size(), arguments.positional.size());
  for (std::size_t i = 0; i < positional; ++i) given[i] = &arguments.positional[i];
  if (arguments.positional.size() > parameters.size() && !macro.uses_varargs)
    throw Failure(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name,
                              parameters.size()));
  Dict others;
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::find_if(parameters.begin(), parameters.end(),
                                    [&name = name](const auto& each) { return each.name == name; });
    if (known != parameters.end()) {
      auto& slot = given[static_cast<std::size_t>(known - parameters.begin())];
      if (slot) throw Failure(fmt::format("macro '{}' got two values for '{}'", macro.name, name));
      slot = &value;
    } else if (name == "caller" && macro.uses_caller) {
      scope_->set("caller", value);
    } else if (macro.uses_kwargs) {
      others.set(Value(name), value, budget_);
    } else {
      throw Failure(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, other] = parameters[i];
    if (given[i])
      scope_->set(name, *given[i]);
    else
      scope_->set(name,
                  other ? evaluate(*other)
                        : Value::undefined(fmt::format("parameter '{}' was not provided", name)));
  }
  if (macro.uses_varargs) {
    const auto first = arguments.positional.begin() + static_cast<std::ptrdiff_t>(positional);
    scope_->set("varargs", Value::sequence({first, arguments.positional.end()},
                                           Sequence::Kind::tuple, budget_));
  }
  if (macro.uses_kwargs) scope_->set("kwargs", Value(std::move(others)));
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const Depth depth(*this);
  budget_.spend(4);
  const int line = line_;
  const NewScope scope(*this, macro.scope);
  bind_parameters(*macro.definition, arguments);
  std::string text = captured(macro.definition->body);
  line_ = line;
  return {std::move(text)};
}

}  // namespace mgpu::text::jinja
