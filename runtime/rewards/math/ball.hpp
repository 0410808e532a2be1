#pragma once

#include <complex>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/rewards/math/expr.hpp"

namespace mgpu::rewards::math {

using Complex = std::complex<long double>;

// A number that is guaranteed to be within `radius` of `middle`.
struct Ball {
  Complex middle;
  long double radius = 0;
};

// Values of symbols, by name.
using Point = std::map<std::string, long double>;

// The value of an expression at a point; nothing if it has none (division by zero, overflow) or it
// is undecided (a floor at a jump). An unknown function is replaced by a fixed smooth function.
std::optional<Ball> evaluate(const Expr& e, const Point& point);

}  // namespace mgpu::rewards::math
