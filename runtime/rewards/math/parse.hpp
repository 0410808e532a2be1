#pragma once

#include <string_view>

#include "runtime/rewards/math/expr.hpp"
#include "runtime/rewards/math/tokens.hpp"

namespace mgpu::rewards::math {

struct Spelling {
  bool repair = false;  // what is no correct LaTeX counts too: \sqrt2, \frac12, x^(2), sqrt(2)
};

// Normalized LaTeX as an expression. Depth, length and work are bounded. Throws Malformed or
// Unsupported.
Expr parse(std::string_view latex, const Spelling& spelling);

}  // namespace mgpu::rewards::math
