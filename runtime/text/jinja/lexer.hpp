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
  std::string text{};  // for a string: its value, without quotes and escapes
  int line = 0;

  bool is(TokenKind other, std::string_view content) const {
    return kind == other && text == content;
  }
};

// Tokenizes a template like Jinja with trim_blocks and lstrip_blocks: the newline after a block tag
// and the blanks before it on its line are removed, and "-" next to a delimiter removes all white
// space. Comments are removed and raw blocks become text. The last token is of kind end. Throws a
// runtime_error that begins with "chat template line L: ".
std::vector<Token> tokenize(std::string_view source);

// Throws the error for a line. Control characters are escaped so that the message stays one line.
[[noreturn]] void fail_at(int line, std::string_view message);

}  // namespace mgpu::text::jinja
