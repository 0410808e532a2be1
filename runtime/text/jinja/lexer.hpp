#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::text::jinja {

enum class TokenKind {
  text,  // outside of tags
  print_begin,
  print_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  sign,  // an operator or bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text{};  // of a string: what it means
  int line = 0;

  bool is(TokenKind other, std::string_view content) const {
    return kind == other && text == content;
  }
};

// Takes a template apart as Jinja does with trim_blocks and lstrip_blocks: the newline after a
// block tag and the blanks before it on its line go, and "-" next to a delimiter takes all white
// space. Comments are gone and raw blocks are text. The last token is of kind end.
// Throws a runtime_error that begins "chat template line L: ".
std::vector<Token> tokenize(std::string_view source);

// The error of a line, with control characters shown so that the message stays one line.
[[noreturn]] void fail_at(int line, std::string_view message);

}  // namespace mgpu::text::jinja
