#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "runtime/text/jinja/parser.hpp"

namespace mgpu::text::jinja {

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
    depth = std::max(depth, node.items.back()->depth);
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
    depth = std::max({depth, key->depth, value->depth});
    node.entries.emplace_back(std::move(key), std::move(value));
  }
  expect_sign("}");
  return deepened(line, depth, {.node = std::move(node)});
}

}  // namespace mgpu::text::jinja
