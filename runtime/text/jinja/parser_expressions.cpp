#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/parser.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr int kDeepestExpression = 250;

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
template ExpressionPtr Parser::make(int, BlockText, std::initializer_list<const ExpressionPtr*>);

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
    unknown_.resize(unknown);  // unknown names there may never be evaluated
    const int line = next().line;
    Conditional node{.yes = std::move(value)};
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
    left =
        deepened(line, depth, {.node = BooleanOperation{std::move(left), std::move(right), false}});
  }
  return left;
}

ExpressionPtr Parser::conjunction() {
  auto left = negation();
  while (is_name("and")) {
    const int line = next().line;
    auto right = negation();
    const int depth = std::max(depth_of(left), depth_of(right));
    left =
        deepened(line, depth, {.node = BooleanOperation{std::move(left), std::move(right), true}});
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
  Concatenation node;
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

}  // namespace mgpu::text::jinja
