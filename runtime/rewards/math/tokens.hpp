#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/rewards/math/rational.hpp"

namespace mgpu::rewards::math {

// The text is no mathematics that we can read.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// It is, with something whose value we cannot decide: an integral, a limit.
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

// Numbers, letters, commands and signs, with an end behind them. 1,234 is one number outside of
// brackets. Throws Malformed.
std::vector<Token> tokens_of(std::string_view latex);

}  // namespace mgpu::rewards::math
