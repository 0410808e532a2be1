#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "runtime/text/jinja_parser.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr int kDeepestExpression = 250;

int depth_of(const ExpressionPtr& expression) {
  return expression ? expression->depth : 0;
}

}  // namespace

ExpressionPtr Parser::deepened(int line, int below, Expression expression) {
  expression.line = line;
  expression.depth = below + 1;
  if (expression.depth > kDeepestExpression)
    fail_at(line, fmt::format("an expression of more than {} steps; use {{% set %}} in between",
                              kDeepestExpression));
  return std::make_unique<const Expression>(std::move(expression));
}

template <class Node>
ExpressionPtr Parser::make(int line, Node node, std::initializer_list<const ExpressionPtr*> below) {
  int depth = 0;
  for (const auto* each : below) depth = std::max(depth, depth_of(*each));
  return deepened(line, depth, {.node = std::move(node)});
}
template ExpressionPtr Parser::make(int, Hole, std::initializer_list<const ExpressionPtr*>);

int Parser::deepest(const CallArguments& arguments) const {
  int depth = std::max(depth_of(arguments.more_positional), depth_of(arguments.more_named));
  for (const auto& each : arguments.positional) depth = std::max(depth, depth_of(each));
  for (const auto& [name, each] : arguments.named) depth = std::max(depth, depth_of(each));
  return depth;
}

ExpressionPtr Parser::expression_list(bool with_choice) {
  const int line = current().line;
  const auto one = [&] { return with_choice ? choice() : disjunction(); };
  auto first = one();
  if (!is_sign(",")) return first;
  ListDisplay tuple{.tuple = true};
  int depth = depth_of(first);
  tuple.items.push_back(std::move(first));
  while (skip_sign(",")) {
    const auto kind = current().kind;
    if (kind == TokenKind::print_end || kind == TokenKind::block_end || is_sign(")")) break;
    tuple.items.push_back(one());
    depth = std::max(depth, depth_of(tuple.items.back()));
  }
  return deepened(line, depth, {.node = std::move(tuple)});
}

ExpressionPtr Parser::choice() {
  const Nesting nesting(*this);
  const std::size_t unknown = unknown_.size();
  auto value = disjunction();
  while (is_name("if")) {
    unknown_.resize(unknown);  // what was unknown may never be evaluated
    const int line = next().line;
    Choice node{.yes = std::move(value)};
    ++conditions_;
    node.test = disjunction();
    if (skip_name("else")) node.no = choice();
    --conditions_;
    const int depth = std::max({depth_of(node.test), depth_of(node.yes), depth_of(node.no)});
    value = deepened(line, depth, {.node = std::move(node)});
  }
  return value;
}

ExpressionPtr Parser::disjunction() {
  auto left = conjunction();
  while (is_name("or")) {
    const int line = next().line;
    auto right = conjunction();
    const int depth = std::max(depth_of(left), depth_of(right));
    left = deepened(line, depth, {.node = Logic{std::move(left), std::move(right), false}});
  }
  return left;
}

ExpressionPtr Parser::conjunction() {
  auto left = negation();
  while (is_name("and")) {
    const int line = next().line;
    auto right = negation();
    const int depth = std::max(depth_of(left), depth_of(right));
    left = deepened(line, depth, {.node = Logic{std::move(left), std::move(right), true}});
  }
  return left;
}

ExpressionPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  const Nesting nesting(*this);
  const int line = next().line;
  auto operand = negation();
  const int depth = depth_of(operand);
  return deepened(line, depth, {.node = Negation{std::move(operand)}});
}

ExpressionPtr Parser::comparison() {
  static constexpr std::pair<std::string_view, Comparison> kSigns[] = {
      {"==", Comparison::equal},  {"!=", Comparison::unequal},
      {"<", Comparison::less},    {"<=", Comparison::less_equal},
      {">", Comparison::greater}, {">=", Comparison::greater_equal}};
  const int line = current().line;
  auto first = sum();
  int depth = depth_of(first);
  Compared node;
  while (true) {
    const auto* sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                    [this](const auto& each) { return is_sign(each.first); });
    Comparison how = Comparison::in;
    if (sign != std::end(kSigns)) {
      how = sign->second;
    } else if (is_name("not") && peek().is(TokenKind::name, "in")) {
      how = Comparison::not_in;
      next();
    } else if (!is_name("in")) {
      break;
    }
    next();
    node.rest.emplace_back(how, sum());
    depth = std::max(depth, depth_of(node.rest.back().second));
  }
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return deepened(line, depth, {.node = std::move(node)});
}

ExpressionPtr Parser::sum() {
  auto left = concatenation();
  while (is_sign("+") || is_sign("-")) {
    const auto op = is_sign("+") ? Operator::add : Operator::subtract;
    const int line = next().line;
    auto right = concatenation();
    const int depth = std::max(depth_of(left), depth_of(right));
    left = deepened(line, depth, {.node = Binary{op, std::move(left), std::move(right)}});
  }
  return left;
}

ExpressionPtr Parser::concatenation() {
  const int line = current().line;
  auto first = product();
  if (!is_sign("~")) return first;
  int depth = depth_of(first);
  Joined node;
  node.parts.push_back(std::move(first));
  while (skip_sign("~")) {
    node.parts.push_back(product());
    depth = std::max(depth, depth_of(node.parts.back()));
  }
  return deepened(line, depth, {.node = std::move(node)});
}

ExpressionPtr Parser::product() {
  static constexpr std::pair<std::string_view, Operator> kSigns[] = {{"*", Operator::multiply},
                                                                     {"/", Operator::divide},
                                                                     {"//", Operator::floor_divide},
                                                                     {"%", Operator::modulo}};
  auto left = power();
  while (true) {
    const auto* sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                    [this](const auto& each) { return is_sign(each.first); });
    if (sign == std::end(kSigns)) return left;
    const int line = next().line;
    auto right = power();
    const int depth = std::max(depth_of(left), depth_of(right));
    left = deepened(line, depth, {.node = Binary{sign->second, std::move(left), std::move(right)}});
  }
}

ExpressionPtr Parser::power() {
  auto left = unary(true);
  while (is_sign("**")) {
    const int line = next().line;
    auto right = unary(true);
    const int depth = std::max(depth_of(left), depth_of(right));
    left =
        deepened(line, depth, {.node = Binary{Operator::power, std::move(left), std::move(right)}});
  }
  return left;
}

ExpressionPtr Parser::unary(bool with_filters) {
  ExpressionPtr value;
  if (is_sign("-") || is_sign("+")) {
    const Nesting nesting(*this);
    const bool minus = is_sign("-");
    const int line = next().line;
    auto operand = unary(false);
    const int depth = depth_of(operand);
    value = deepened(line, depth, {.node = Sign{std::move(operand), minus}});
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::primary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::name:
      return name_or_constant();
    case TokenKind::string: {
      std::string text = next().text;
      while (current().kind == TokenKind::string) text += next().text;
      return deepened(line, 0, {.node = Literal{Value(std::move(text))}});
    }
    case TokenKind::integer:
    case TokenKind::real:
      return number();
    default:
      break;
  }
  if (is_sign("(")) return parenthesized();
  if (is_sign("[")) return list_display();
  if (is_sign("{")) return dict_display();
  unexpected("an expression");
}

ExpressionPtr Parser::name_or_constant() {
  const Token token = next();
  const auto& name = token.text;
  Expression node;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node.node = Literal{Value(name[0] == 't' || name[0] == 'T')};
  } else if (name == "none" || name == "None") {
    node.node = Literal{Value()};
  } else {
    if (macro_) {
      macro_->uses_varargs |= name == "varargs";
      macro_->uses_kwargs |= name == "kwargs";
      macro_->uses_caller |= name == "caller";
    }
    node.node = Variable{name};
  }
  return deepened(token.line, 0, std::move(node));
}

ExpressionPtr Parser::number() {
  const Token token = next();
  const char* const end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::real) {
    double value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      fail_at(token.line, fmt::format("{} does not fit a float", token.text));
    return deepened(token.line, 0, {.node = Literal{Value(value)}});
  }
  const char letter = token.text.size() > 2 ? static_cast<char>(token.text[1] | 0x20) : '\0';
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  std::int64_t value = 0;
  const char* const begin = token.text.data() + (base == 10 ? 0 : 2);
  if (std::from_chars(begin, end, value, base).ec != std::errc())
    fail_at(token.line, fmt::format("{} does not fit 64 bits", token.text));
  return deepened(token.line, 0, {.node = Literal{Value(static_cast<Integer>(value))}});
}

ExpressionPtr Parser::parenthesized() {
  const int line = next().line;
  if (skip_sign(")")) return deepened(line, 0, {.node = ListDisplay{.tuple = true}});
  auto inside = expression_list(true);
  expect_sign(")");
  return inside;
}

ExpressionPtr Parser::list_display() {
  const int line = next().line;
  ListDisplay node;
  int depth = 0;
  while (!is_sign("]")) {
    if (!node.items.empty()) {
      expect_sign(",");
      if (is_sign("]")) break;
    }
    node.items.push_back(expression());
    depth = std::max(depth, depth_of(node.items.back()));
  }
  expect_sign("]");
  return deepened(line, depth, {.node = std::move(node)});
}

ExpressionPtr Parser::dict_display() {
  const int line = next().line;
  DictDisplay node;
  int depth = 0;
  while (!is_sign("}")) {
    if (!node.entries.empty()) {
      expect_sign(",");
      if (is_sign("}")) break;
    }
    auto key = expression();
    expect_sign(":");
    auto value = expression();
    depth = std::max({depth, depth_of(key), depth_of(value)});
    node.entries.emplace_back(std::move(key), std::move(value));
  }
  expect_sign("}");
  return deepened(line, depth, {.node = std::move(node)});
}

}  // namespace mgpu::text::jinja
