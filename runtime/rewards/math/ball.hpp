#pragma once

#include <complex>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/rewards/math/expr.hpp"

namespace mgpu::rewards::math {

using Complex = std::complex<long double>;

// A number that is surely within `radius` of `middle`.
struct Ball {
  Complex middle;
  long double radius = 0;
};

// Values of symbols, by name.
using Point = std::map<std::string, long double>;

// The value of an expression at a point; nothing where it has none (a division by zero, an
// overflow) or where it is not decided (a floor at a jump). An unknown function is taken for some
// smooth one, always the same.
std::optional<Ball> evaluate(const Expr& e, const Point& point);

}  // namespace mgpu::rewards::math
