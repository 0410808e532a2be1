#pragma once

#include <optional>

#include "runtime/rewards/math/expr.hpp"

namespace mgpu::rewards::math {

// The value of an expression if it is rational by arithmetic alone: sums, products, integer powers,
// percents, factorials, binomials, gcd, lcm, max, min, mod, floor, ceil, abs.
std::optional<Rational> exact_value(const Expr& e);

// Whether it contains a number with a decimal point.
bool has_decimal(const Expr& e);

}  // namespace mgpu::rewards::math
