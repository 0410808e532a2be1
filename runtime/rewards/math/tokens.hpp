#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/rewards/math/rational.hpp"

namespace mgpu::rewards::math {

// The text is not mathematics that the parser supports.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The text is mathematics whose value is not computed, such as an integral or a limit.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Token {
  enum class Kind { number, letter, command, sign, end };
  Kind kind = Kind::end;
  std::string text{};  // number: its digits; command: its name with the backslash
  Rational value{};
  bool decimal = false;
  bool blank_before = false;

  bool is(std::string_view what) const { return kind != Kind::end && text == what; }
};

// Numbers, letters, commands and signs, followed by an end token. Outside brackets 1,234 is one
// number. Throws Malformed.
std::vector<Token> tokens_of(std::string_view latex);

}  // namespace mgpu::rewards::math
