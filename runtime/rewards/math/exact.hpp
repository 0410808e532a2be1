#pragma once

#include <optional>

#include "runtime/rewards/math/expr.hpp"

namespace mgpu::rewards::math {

// The rational number that an expression is, if it is one by arithmetic alone: sums, products,
// whole powers, percents, factorials, binomials, gcd, lcm, max, min, mod, floor, ceil, abs.
std::optional<Rational> exact_value(const Expr& e);

// Whether a number written with a point is in it.
bool has_decimal(const Expr& e);

}  // namespace mgpu::rewards::math
