#pragma once

#include <string_view>

#include "runtime/rewards/math/expr.hpp"
#include "runtime/rewards/math/tokens.hpp"

namespace mgpu::rewards::math {

struct Spelling {
  bool repair = false;  // accept incorrect LaTeX: \sqrt2, \frac12, x^(2), sqrt(2)
};

// Parses normalized LaTeX. Depth, length and work are bounded. Throws Malformed or
// Unsupported.
Expr parse(std::string_view latex, const Spelling& spelling);

}  // namespace mgpu::rewards::math
