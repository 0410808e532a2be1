#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/parser.hpp"

namespace mgpu::text::jinja {

ExpressionPtr Parser::postfix(ExpressionPtr object) {
  while (true) {
    if (is_sign("."))
      object = dotted(std::move(object));
    else if (is_sign("["))
      object = subscript(std::move(object));
    else if (is_sign("("))
      object = call(std::move(object));
    else
      return object;
  }
}

ExpressionPtr Parser::dotted(ExpressionPtr object) {
  const int line = next().line, depth = depth_of(object);
  if (current().kind == TokenKind::integer) {
    auto index = number();
    return deepened(line, depth, {.node = Item{std::move(object), std::move(index)}});
  }
  if (current().kind != TokenKind::name) unexpected("a name or number");
  return deepened(line, depth, {.node = Attribute{std::move(object), next().text}});
}

ExpressionPtr Parser::subscript(ExpressionPtr object) {
  const int line = next().line;
  Slice slice;
  ExpressionPtr index;
  bool sliced = false;
  const auto part = [this] {
    return is_sign(":") || is_sign("]") ? ExpressionPtr() : expression();
  };
  if (is_sign("]")) unexpected("an index");
  index = part();
  if (skip_sign(":")) {
    sliced = true;
    slice.start = std::move(index);
    slice.stop = part();
    if (skip_sign(":")) slice.step = part();
  }
  if (is_sign(",")) {
    if (sliced) fail_at(line, "a slice among several indices is not supported");
    ListDisplay several{.tuple = true};
    int depth = depth_of(index);
    several.items.push_back(std::move(index));
    while (skip_sign(",")) {
      several.items.push_back(expression());
      depth = std::max(depth, depth_of(several.items.back()));
    }
    index = deepened(line, depth, {.node = std::move(several)});
  }
  expect_sign("]");
  if (!sliced) {
    const int depth = std::max(depth_of(object), depth_of(index));
    return deepened(line, depth, {.node = Item{std::move(object), std::move(index)}});
  }
  const int depth = std::max(
      {depth_of(object), depth_of(slice.start), depth_of(slice.stop), depth_of(slice.step)});
  slice.object = std::move(object);
  return deepened(line, depth, {.node = std::move(slice)});
}

ExpressionPtr Parser::filters(ExpressionPtr subject) {
  while (true) {
    if (skip_sign("|"))
      subject = filter(std::move(subject));
    else if (is_name("is"))
      subject = test(std::move(subject));
    else if (is_sign("("))
      subject = call(std::move(subject));
    else
      return subject;
  }
}

std::string Parser::dotted_name() {
  std::string name = expect_any_name();
  while (skip_sign(".")) name += "." + expect_any_name();
  return name;
}

ExpressionPtr Parser::filter(ExpressionPtr subject) {
  const int line = current().line;
  Filtered node{.name = dotted_name()};
  if (!find_filter(node.name) && conditions_ == 0)
    unknown_.emplace_back(line, fmt::format("there is no filter '{}'", node.name));
  if (is_sign("(")) node.arguments = call_arguments();
  const int depth = std::max(depth_of(subject), deepest(node.arguments));
  node.subject = std::move(subject);
  return deepened(line, depth, {.node = std::move(node)});
}

ExpressionPtr Parser::test(ExpressionPtr subject) {
  const int line = next().line;
  const bool negated = skip_name("not");
  Tested node{.name = dotted_name()};
  if (!find_test(node.name) && conditions_ == 0)
    unknown_.emplace_back(line, fmt::format("there is no test '{}'", node.name));
  const auto kind = current().kind;
  const bool value_follows =
      ((kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and")) ||
       kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::real ||
       is_sign("[") || is_sign("{"));
  if (is_sign("(")) {
    node.arguments = call_arguments();
  } else if (value_follows) {
    if (is_name("is")) fail_at(line, "tests with 'is' cannot be chained");
    const Nesting nesting(*this);
    node.arguments.positional.push_back(postfix(primary()));
  }
  const int depth = std::max(depth_of(subject), deepest(node.arguments));
  node.subject = std::move(subject);
  auto tested = deepened(line, depth, {.node = std::move(node)});
  return negated ? deepened(line, depth + 1, {.node = Negation{std::move(tested)}})
                 : std::move(tested);
}

ExpressionPtr Parser::call(ExpressionPtr callee) {
  const int line = current().line;
  Call node;
  node.arguments = call_arguments();
  const int depth = std::max(depth_of(callee), deepest(node.arguments));
  node.callee = std::move(callee);
  return deepened(line, depth, {.node = std::move(node)});
}

CallArguments Parser::call_arguments() {
  CallArguments all;
  expect_sign("(");
  bool first = true;
  while (!is_sign(")")) {
    if (!first) {
      expect_sign(",");
      if (is_sign(")")) break;
    }
    first = false;
    const int line = current().line;
    if (skip_sign("**")) {
      if (all.more_named) fail_at(line, "invalid arguments of a call");
      all.more_named = expression();
    } else if (skip_sign("*")) {
      if (all.more_positional || all.more_named) fail_at(line, "invalid arguments of a call");
      all.more_positional = expression();
    } else if (current().kind == TokenKind::name && peek().is(TokenKind::sign, "=")) {
      if (all.more_named) fail_at(line, "invalid arguments of a call");
      std::string name = next().text;
      next();
      all.named.emplace_back(std::move(name), expression());
    } else {
      if (!all.named.empty() || all.more_positional || all.more_named)
        fail_at(line, "a positional argument behind a named one");
      all.positional.push_back(expression());
    }
  }
  expect_sign(")");
  return all;
}

}  // namespace mgpu::text::jinja
