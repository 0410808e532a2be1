#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/rewards/math/expr.hpp"
#include "runtime/rewards/math/parse.hpp"
#include "runtime/rewards/math/tokens.hpp"

namespace mgpu::rewards::math {

// A recursive-descent parser. Each parser parses one text once.
class Parser {
 public:
  // sign: the value of \pm, +1 or -1; \mp is the opposite.
  Parser(const std::vector<Token>& tokens, const Spelling& spelling, int sign)
      : tokens_(tokens), spelling_(spelling), sign_(sign) {}

  // Parses the whole text.
  Expr read();

 private:
  // parser.cpp: lists, relations, sums, products, powers
  std::vector<Expr> read_items();  // up to a token that cannot begin an item
  Expr read_list();
  Expr read_relation();
  Expr read_sets();
  Expr read_sum();
  Expr read_product();
  Expr read_implicit_product();
  Expr read_signed();
  Expr read_powers(Expr base);
  Expr read_factor();
  Expr mixed_number(const Expr& whole);
  bool begins_factor() const;

  // parser_primary.cpp: the beginnings of factors
  Expr read_primary();
  Expr read_command();
  Expr read_letter();
  Expr read_round_or_square();
  Expr read_set_braces();
  Expr read_bars(std::string_view closing);
  Expr read_fraction();
  Expr read_root();
  Expr read_words();
  Expr read_decorated();
  Expr read_group();     // {...} as an expression
  Expr read_argument();  // {...}; with repair also one digit or letter
  std::string read_subscript();

  // parser_calls.cpp: functions and matrices
  Expr read_function(const std::string& name);
  Expr read_function_argument();
  Expr read_logarithm();
  Expr read_many(const std::string& name);
  Expr read_environment();

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool is(std::string_view text) const { return now().is(text); }
  bool accept(std::string_view text);
  void expect(std::string_view text);

  struct Deeper;  // counts the depth while it lives

  const std::vector<Token>& tokens_;
  Spelling spelling_;
  int sign_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int bars_ = 0;  // currently open |
};

struct Parser::Deeper {
  explicit Deeper(Parser& parser);
  ~Deeper() { --parser.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Parser& parser;
};

// Whether it is a function of one argument with its own command.
bool is_function_name(std::string_view name);

}  // namespace mgpu::rewards::math
