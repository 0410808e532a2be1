#include <algorithm>
#include <array>

#include "runtime/rewards/math/parser.hpp"

namespace mgpu::rewards::math {
namespace {

constexpr std::array kFunctions = {
    "sin",    "cos",    "tan",  "cot",  "sec",  "csc", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "tanh", "exp",
};

std::string inverse_of(const std::string& name) {
  if (name == "sin" || name == "cos" || name == "tan") return "arc" + name;
  throw Unsupported("the inverse of " + name);
}

bool is_minus_one(const Expr& e) {
  return e->kind == Kind::number && e->value == -1;
}

}  // namespace

bool is_function_name(std::string_view name) {
  return std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end();
}

// \sin x, \sin(x), \sin^2 x, \sin^{-1} x
Expr Parser::read_function(const std::string& name) {
  const Deeper deeper(*this);
  Expr exponent;
  if (accept("^")) exponent = is("{") ? read_group() : read_primary();
  if (exponent && is_minus_one(exponent)) return call(inverse_of(name), {read_function_argument()});
  auto value = call(name, {read_function_argument()});
  return exponent ? node(Kind::power, {value, exponent}) : value;
}

// The contents of brackets; without brackets, everything up to an operator or another function.
Expr Parser::read_function_argument() {
  if (is("(") || is("[") || is("{")) return read_primary();
  std::vector<Expr> factors;
  const auto more = [this] {
    if (now().kind == Token::Kind::number) return true;
    if (is("(") || is("[") || !begins_factor()) return false;
    return now().kind != Token::Kind::command ||
           (!is_function_name(std::string_view(now().text).substr(1)) && !is("\\log") &&
            !is("\\ln") && !is("\\lg"));
  };
  if (now().kind == Token::Kind::command && !more()) return read_factor();
  while (more()) factors.push_back(read_factor());
  if (factors.empty()) throw Malformed("a function without argument");
  return factors.size() == 1 ? factors[0] : node(Kind::product, std::move(factors));
}

Expr Parser::read_logarithm() {
  const Deeper deeper(*this);
  Expr base = is("\\ln") ? constant("e") : number(10);
  ++at_;
  if (accept("_")) {
    if (is("{")) {
      base = read_group();
    } else if (now().kind == Token::Kind::number) {
      // \log_28 means the logarithm of 8 to the base 2, because an argument without braces is one
      // digit.
      if (now().text.size() != 1) throw Malformed("the base of a logarithm without braces");
      base = read_primary();
    } else {
      base = read_primary();
    }
  }
  Expr exponent;
  if (accept("^")) exponent = is("{") ? read_group() : read_primary();
  auto value = call("log", {read_function_argument(), base});
  return exponent ? node(Kind::power, {value, exponent}) : value;
}

// \gcd(4, 6)
Expr Parser::read_many(const std::string& name) {
  const bool braces = accept("\\{");
  if (!braces) expect("(");
  auto items = read_items();
  expect(braces ? "\\}" : ")");
  return call(name, std::move(items));
}

Expr Parser::read_environment() {
  ++at_;
  const auto name = [this] {
    expect("{");
    std::string text;
    while (now().kind == Token::Kind::letter || is("*")) text += tokens_[at_++].text;
    expect("}");
    return text;
  };
  const std::string kind = name();
  if (kind == "vmatrix" || kind == "cases" || kind == "aligned" || kind == "array" ||
      kind == "align")
    throw Unsupported(kind);
  if (kind != "matrix" && kind != "pmatrix" && kind != "bmatrix" && kind != "Bmatrix" &&
      kind != "smallmatrix")
    throw Malformed("an unknown environment");
  std::vector<Expr> cells;
  std::size_t columns = 0;
  std::size_t in_row = 0;
  for (;;) {
    if (is("\\end")) break;  // after the last \\ of a matrix
    cells.push_back(read_sum());
    ++in_row;
    if (accept("&")) continue;
    if (columns != 0 && in_row != columns) throw Malformed("rows of different lengths");
    columns = in_row;
    in_row = 0;
    if (!accept("\\\\")) break;
  }
  expect("\\end");
  if (name() != kind || cells.empty()) throw Malformed("a matrix is not closed");
  Node matrix{.kind = Kind::matrix, .args = std::move(cells), .columns = columns};
  return std::make_shared<const Node>(std::move(matrix));
}

}  // namespace mgpu::rewards::math
