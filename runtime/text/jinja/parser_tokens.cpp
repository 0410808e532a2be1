#include <fmt/format.h>

#include "runtime/text/jinja/parser.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr int kDeepestNesting = 100;

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::block_end:
      return "the end of the tag";
    case TokenKind::print_end:
      return "'}}'";
    case TokenKind::text:
    case TokenKind::print_begin:
    case TokenKind::block_begin:
      return "the next tag";
    case TokenKind::name:
    case TokenKind::integer:
    case TokenKind::real:
    case TokenKind::sign:
      return "'" + token.text + "'";
    case TokenKind::string:
      return "a string";
  }
  return {};
}

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kDeepestNesting) {
    const int line = parser_.current().line;
    --parser_.nesting_;
    fail_at(line, fmt::format("nested more than {} deep", kDeepestNesting));
  }
}

void Parser::unexpected(std::string_view wanted) const {
  fail_at(current().line, fmt::format("expected {}, not {}", wanted, shown(current())));
}

Token Parser::next() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_sign(std::string_view text) {
  if (!is_sign(text)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  next();
  return true;
}

void Parser::expect_sign(std::string_view text) {
  if (!skip_sign(text)) unexpected(fmt::format("'{}'", text));
}

void Parser::expect_name(std::string_view text) {
  if (!skip_name(text)) unexpected(fmt::format("'{}'", text));
}

void Parser::expect_block_end() {
  if (current().kind != TokenKind::block_end) unexpected("'%}'");
  next();
}

std::string Parser::expect_any_name() {
  if (current().kind != TokenKind::name) unexpected("a name");
  return next().text;
}

}  // namespace mgpu::text::jinja
