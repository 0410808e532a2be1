#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/text/jinja/library.hpp"
#include "runtime/text/jinja/operators.hpp"

// The syntax tree of a template, made by the parser and walked by the interpreter. It is immutable
// after parsing, so several threads can render it.
namespace mgpu::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  // *these, **those
};

struct Literal {
  Value value;
};
struct Variable {
  std::string name;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // the last three may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct BlockText {};  // the rendered body of a filter block or set block
struct Filtered {
  ExpressionPtr subject;
  std::string name;
  CallArguments arguments;
};
struct Tested {
  ExpressionPtr subject;
  std::string name;
  CallArguments arguments;
};
struct ListDisplay {
  std::vector<ExpressionPtr> items;
  bool tuple = false;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Negation {
  ExpressionPtr operand;
};
struct Sign {
  ExpressionPtr operand;
  bool minus = true;
};
struct Binary {
  Operator op;
  ExpressionPtr left, right;
};
struct BooleanOperation {
  ExpressionPtr left, right;
  bool all = true;  // and; else or
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;  // with ~
};
enum class Comparison { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };
struct Compared {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr test, yes, no;  // no may be null
};

struct Expression {
  int line = 0;
  int depth = 0;  // of the tree below
  std::variant<Literal, Variable, Attribute, Item, Slice, Call, BlockText, Filtered, Tested,
               ListDisplay, DictDisplay, Negation, Sign, Binary, BooleanOperation, Concatenation,
               Compared, Conditional>
      node;
};

inline int depth_of(const ExpressionPtr& expression) {
  return expression ? expression->depth : 0;
}

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

// The target of an assignment: a name, a namespace's attribute, or several of them.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
};

struct Output {
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct Branch {
  ExpressionPtr test;  // null for else
  Body body;
};
struct If {
  std::vector<Branch> branches;
};
struct For {
  Target target;
  ExpressionPtr elements, condition;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr value;  // contains a BlockText
  Body body;
};
struct Parameter {
  std::string name;
  ExpressionPtr value;  // the default, or null
};
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};
struct CallBlock {
  MacroDefinition caller;
  ExpressionPtr call;
};
struct FilterBlock {
  ExpressionPtr value;  // contains a BlockText
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
};
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 0;
  std::variant<Output, Print, If, For, Set, SetBlock, MacroDefinition, CallBlock, FilterBlock, With,
               Generation, Break, Continue>
      node;
};

struct Template {
  Body body;
  bool has_generation = false;
};

}  // namespace mgpu::text::jinja
