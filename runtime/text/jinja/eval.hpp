#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/syntax.hpp"

namespace mgpu::text::jinja {

// The limits of a rendering. Exceeding one is an error. As a step may keep 16 bytes, the work also
// limits the memory, to 320 MB for each thread that renders.
struct Limits {
  std::size_t work = 20'000'000;  // steps: see Budget
  std::size_t output = std::size_t{64} << 20;
  int depth = 600;  // of calls and nested expressions
};

// The variables set in a part of the template. Names are looked up from the innermost scope
// outwards.
struct Scope {
  Scope* outer = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables{};
  bool kept = false;  // a macro may still use this scope after the part has ended

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Macro {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined
};

// The result of rendering a template. `misplaced_generation`: a {% generation %} is inside a macro
// or a captured block, so it has no position in the text.
struct Result {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> generation;
  bool misplaced_generation = false;
};

// Renders one template once.
class Interpreter {
 public:
  Interpreter(const Template& parsed, const Limits& limits)
      : template_(parsed), limits_(limits), budget_(limits.work) {}

  // The variables' names must outlive the interpreter. Throws a runtime_error that begins
  // "chat template line L: ".
  Result render(std::vector<std::pair<std::string_view, Value>> variables);

  // For the filters, tests and functions:
  Budget& budget() { return budget_; }
  Value call(const Value& callee, const Arguments& arguments);
  Value filtered(const std::string& name, const Value& subject, const Arguments& arguments);
  bool tested(const std::string& name, const Value& subject, const Arguments& arguments);
  Namespace& add_namespace();

 private:
  enum class Flow { next, breaks, continues };
  class Depth;
  class Capture;
  class NewScope;

  // Expressions (eval.cpp)
  Value evaluate(const Expression& expression);
  Value evaluate_or_none(const ExpressionPtr& expression);
  Value value_of(const Literal& node) { return node.value; }
  Value value_of(const Variable& node);
  Value value_of(const Attribute& node);
  Value value_of(const Item& node);
  Value value_of(const Slice& node);
  Value value_of(const Call& node);
  Value value_of(const BlockText&) { return block_text_; }
  Value value_of(const Filtered& node);
  Value value_of(const Tested& node);
  Value value_of(const ListDisplay& node);
  Value value_of(const DictDisplay& node);
  Value value_of(const Negation& node) { return {!evaluate(*node.operand).truth()}; }
  Value value_of(const Sign& node) { return negate(evaluate(*node.operand), node.minus); }
  Value value_of(const Binary& node);
  Value value_of(const BooleanOperation& node);
  Value value_of(const Concatenation& node);
  Value value_of(const Compared& node);
  Value value_of(const Conditional& node);
  bool compare_with(Comparison how, const Value& left, const Value& right);
  Arguments evaluate(const CallArguments& arguments);

  // Statements (statements.cpp)
  Flow execute(const Body& body);
  Flow execute(const Output& node);
  Flow execute(const Print& node);
  Flow execute(const If& node);
  Flow execute(const For& node);
  Flow execute(const Set& node);
  Flow execute(const SetBlock& node);
  Flow execute(const MacroDefinition& node);
  Flow execute(const CallBlock& node);
  Flow execute(const FilterBlock& node);
  Flow execute(const With& node);
  Flow execute(const Generation& node);
  Flow execute(const Break&) { return Flow::breaks; }
  Flow execute(const Continue&) { return Flow::continues; }
  bool iterate(const For& node, Loop& loop, const Value& shown);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  void bind_parameters(const MacroDefinition& macro, const Arguments& arguments);
  Value make_macro(const MacroDefinition& definition);
  void assign(const Target& target, const Value& value);
  void emit(std::string_view text);
  std::string captured(const Body& body);

  const Template& template_;
  Limits limits_;
  Budget budget_;
  int line_ = 1;
  int depth_ = 0;
  Scope* scope_ = nullptr;
  Value block_text_;
  Result result_;
  std::string* out_ = &result_.text;
  bool in_generation_ = false;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

}  // namespace mgpu::text::jinja
