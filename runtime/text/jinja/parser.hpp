#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/lexer.hpp"
#include "runtime/text/jinja/syntax.hpp"

namespace mgpu::text::jinja {

// Parses a template. Throws a runtime_error that begins with "chat template line L: ". Jinja
// features that chat templates do not use (include, import, extends, block, recursive loops) and
// unknown filters and tests are rejected by name; unknown filters and tests are allowed under a
// condition.
Template parse_template(std::string_view source);

// Walks the tokens of one template.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Template parse();

 private:
  // Statements (parser.cpp)
  Body body(std::initializer_list<std::string_view> ends);
  std::unique_ptr<const Statement> statement();
  template <class Node>
  std::unique_ptr<const Statement> make_statement(int line, Node node);
  std::unique_ptr<const Statement> print(int line);
  std::unique_ptr<const Statement> parse_if(int line);
  std::unique_ptr<const Statement> parse_for(int line);
  std::unique_ptr<const Statement> parse_set(int line);
  std::unique_ptr<const Statement> parse_macro(int line);
  std::unique_ptr<const Statement> parse_call(int line);
  std::unique_ptr<const Statement> parse_filter_block(int line);
  std::unique_ptr<const Statement> parse_with(int line);
  std::unique_ptr<const Statement> parse_generation(int line);
  std::unique_ptr<const Statement> parse_loop_control(int line, bool breaks);
  std::vector<Parameter> parameters();
  void macro_body(MacroDefinition& macro, std::string_view end);
  Target target();
  Target single_target();

  // Expressions (parser_expressions.cpp); each function also parses the operators that bind
  // tighter.
  ExpressionPtr expression() { return choice(); }
  ExpressionPtr expression_list(bool with_choice);  // a, b makes a tuple
  ExpressionPtr choice();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  // Primary expressions (parser_primary.cpp)
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr number();
  ExpressionPtr parenthesized();
  ExpressionPtr list_display();
  ExpressionPtr dict_display();
  // Postfix operators (parser_postfix.cpp)
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr dotted(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr filters(ExpressionPtr subject);
  ExpressionPtr filter(ExpressionPtr subject);
  ExpressionPtr test(ExpressionPtr subject);
  ExpressionPtr call(ExpressionPtr callee);
  CallArguments call_arguments();
  std::string dotted_name();
  template <class Node>
  ExpressionPtr make(int line, Node node, std::initializer_list<const ExpressionPtr*> below);
  int deepest(const CallArguments& arguments) const;
  ExpressionPtr deepened(int line, int below, Expression expression);

  // Tokens (parser_tokens.cpp)
  const Token& current() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next();
  bool is_sign(std::string_view text) const { return current().is(TokenKind::sign, text); }
  bool is_name(std::string_view text) const { return current().is(TokenKind::name, text); }
  bool skip_sign(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_sign(std::string_view text);
  void expect_name(std::string_view text);
  void expect_block_end();
  std::string expect_any_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Limits the nesting of brackets and blocks, because the stack is limited.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;       // enclosing loops that break and continue can refer to
  int conditions_ = 0;  // enclosing conditions that may prevent evaluation
  std::vector<std::pair<int, std::string>> unknown_;  // filters and tests, and their lines
  bool generation_ = false;
  MacroDefinition* macro_ = nullptr;  // the macro whose body is being parsed
};

}  // namespace mgpu::text::jinja
