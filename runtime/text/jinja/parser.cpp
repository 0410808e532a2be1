#include "runtime/text/jinja/parser.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mgpu::text::jinja {

namespace {

bool is_constant(std::string_view name) {
  static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                    "False", "none", "None"};
  return std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants);
}

}  // namespace

Template Parser::parse() {
  Template parsed;
  parsed.body = body({});
  if (!unknown_.empty()) fail_at(unknown_.front().first, unknown_.front().second);
  parsed.has_generation = generation_;
  return parsed;
}

template <class Node>
std::unique_ptr<const Statement> Parser::make_statement(int line, Node node) {
  return std::make_unique<const Statement>(Statement{line, std::move(node)});
}

// Parses everything before a tag with one of the names, which becomes the current token; without
// names, everything before the end.
Body Parser::body(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  const int line = current().line;
  Body statements;
  while (current().kind != TokenKind::end) {
    const Token token = next();
    if (token.kind == TokenKind::text) {
      statements.push_back(make_statement(token.line, Output{token.text}));
    } else if (token.kind == TokenKind::print_begin) {
      statements.push_back(print(token.line));
    } else {
      if (std::any_of(ends.begin(), ends.end(), [this](auto name) { return is_name(name); }))
        return statements;
      statements.push_back(statement());
    }
  }
  if (ends.size() > 0) fail_at(line, fmt::format("there is no '{}' for this", *(ends.end() - 1)));
  return statements;
}

std::unique_ptr<const Statement> Parser::print(int line) {
  auto value = expression_list(true);
  if (current().kind != TokenKind::print_end) unexpected("'}}'");
  next();
  return make_statement(line, Print{std::move(value)});
}

std::unique_ptr<const Statement> Parser::statement() {
  const int line = current().line;
  if (current().kind != TokenKind::name) unexpected("the name of a tag");
  const std::string name = next().text;
  if (name == "if") return parse_if(line);
  if (name == "for") return parse_for(line);
  if (name == "set") return parse_set(line);
  if (name == "macro") return parse_macro(line);
  if (name == "call") return parse_call(line);
  if (name == "filter") return parse_filter_block(line);
  if (name == "with") return parse_with(line);
  if (name == "generation") return parse_generation(line);
  if (name == "break" || name == "continue") return parse_loop_control(line, name == "break");
  if (name == "print") {
    auto value = expression_list(true);
    expect_block_end();
    return make_statement(line, Print{std::move(value)});
  }
  static constexpr std::string_view kRefused[] = {"include", "import", "from",      "extends",
                                                  "block",   "do",     "autoescape"};
  if (std::find(std::begin(kRefused), std::end(kRefused), name) != std::end(kRefused))
    fail_at(line, fmt::format("the tag '{}' is not supported in chat templates", name));
  fail_at(line, fmt::format("unknown tag '{}'", name));
}

std::unique_ptr<const Statement> Parser::parse_if(int line) {
  If node;
  bool last = false;
  ++conditions_;
  while (!last) {
    ExpressionPtr test = expression_list(false);
    expect_block_end();
    Body inside = body({"elif", "else", "endif"});
    node.branches.push_back({std::move(test), std::move(inside)});
    const std::string word = next().text;
    last = word != "elif";
    if (word != "else") continue;
    expect_block_end();
    node.branches.push_back({nullptr, body({"endif"})});
    next();
  }
  --conditions_;
  expect_block_end();
  return make_statement(line, std::move(node));
}

std::unique_ptr<const Statement> Parser::parse_for(int line) {
  For node;
  node.target = target();
  expect_name("in");
  node.elements = expression_list(false);
  if (skip_name("if")) node.condition = expression();
  if (is_name("recursive")) fail_at(line, "recursive loops are not supported; use a macro");
  expect_block_end();
  ++loops_;
  node.body = body({"else", "endfor"});
  --loops_;
  if (next().text == "else") {
    expect_block_end();
    node.otherwise = body({"endfor"});
    next();
  }
  expect_block_end();
  return make_statement(line, std::move(node));
}

Target Parser::single_target() {
  if (skip_sign("(")) {
    Target inner = target();
    expect_sign(")");
    return inner;
  }
  const int line = current().line;
  Target one{.name = expect_any_name()};
  if (is_constant(one.name)) fail_at(line, fmt::format("cannot assign to '{}'", one.name));
  if (skip_sign(".")) one.attribute = expect_any_name();
  return one;
}

Target Parser::target() {
  const Nesting nesting(*this);
  Target first = single_target();
  if (!is_sign(",")) return first;
  Target all;
  all.parts.push_back(std::move(first));
  while (skip_sign(",")) {
    const bool another = (current().kind == TokenKind::name && !is_name("in")) || is_sign("(");
    if (!another) break;
    all.parts.push_back(single_target());
  }
  return all;
}

std::unique_ptr<const Statement> Parser::parse_set(int line) {
  Target where = target();
  if (skip_sign("=")) {
    auto value = expression_list(true);
    expect_block_end();
    return make_statement(line, Set{std::move(where), std::move(value)});
  }
  SetBlock node{.target = std::move(where)};
  node.value = filters(make(line, BlockText{}, {}));
  expect_block_end();
  node.body = body({"endset"});
  next();
  expect_block_end();
  return make_statement(line, std::move(node));
}

std::vector<Parameter> Parser::parameters() {
  std::vector<Parameter> all;
  expect_sign("(");
  while (!is_sign(")")) {
    if (!all.empty()) {
      expect_sign(",");
      if (is_sign(")")) break;
    }
    Parameter one{.name = expect_any_name()};
    if (skip_sign("="))
      one.value = expression();
    else if (!all.empty() && all.back().value)
      fail_at(current().line, "non-default argument follows default argument");
    all.push_back(std::move(one));
  }
  expect_sign(")");
  return all;
}

// Parses a body that is its own function: break and continue refer to loops inside it only.
void Parser::macro_body(MacroDefinition& macro, std::string_view end) {
  expect_block_end();
  auto* const outer_macro = std::exchange(macro_, &macro);
  const int outer_loops = std::exchange(loops_, 0);
  macro.body = body({end});
  macro_ = outer_macro;
  loops_ = outer_loops;
  next();
  expect_block_end();
}

std::unique_ptr<const Statement> Parser::parse_macro(int line) {
  MacroDefinition macro{.name = expect_any_name()};
  macro.parameters = parameters();
  macro_body(macro, "endmacro");
  return make_statement(line, std::move(macro));
}

std::unique_ptr<const Statement> Parser::parse_call(int line) {
  CallBlock node;
  node.caller.name = "caller";
  if (is_sign("(")) node.caller.parameters = parameters();
  node.call = expression();
  if (!std::holds_alternative<Call>(node.call->node)) fail_at(line, "expected a call");
  macro_body(node.caller, "endcall");
  return make_statement(line, std::move(node));
}

std::unique_ptr<const Statement> Parser::parse_filter_block(int line) {
  FilterBlock node;
  node.value = filters(filter(make(line, BlockText{}, {})));
  expect_block_end();
  node.body = body({"endfilter"});
  next();
  expect_block_end();
  return make_statement(line, std::move(node));
}

std::unique_ptr<const Statement> Parser::parse_with(int line) {
  With node;
  while (current().kind != TokenKind::block_end) {
    if (!node.variables.empty()) expect_sign(",");
    Target where = single_target();
    expect_sign("=");
    node.variables.emplace_back(std::move(where), expression());
  }
  expect_block_end();
  node.body = body({"endwith"});
  next();
  expect_block_end();
  return make_statement(line, std::move(node));
}

std::unique_ptr<const Statement> Parser::parse_generation(int line) {
  MacroDefinition inside;
  generation_ = true;
  macro_body(inside, "endgeneration");
  return make_statement(line, Generation{std::move(inside.body)});
}

std::unique_ptr<const Statement> Parser::parse_loop_control(int line, bool breaks) {
  if (loops_ == 0) fail_at(line, breaks ? "break outside of a loop" : "continue outside of a loop");
  expect_block_end();
  return breaks ? make_statement(line, Break{}) : make_statement(line, Continue{});
}

Template parse_template(std::string_view source) {
  return Parser(tokenize(source)).parse();
}

}  // namespace mgpu::text::jinja
