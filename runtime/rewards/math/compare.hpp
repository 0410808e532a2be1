#pragma once

#include <string>
#include <string_view>

#include "runtime/rewards/math/expr.hpp"

namespace mgpu::rewards::math {

enum class Verdict { no, yes, unknown };

// The remaining work of a comparison, counted in visited nodes and not in time, so that every rank
// gets the same result.
struct Work {
  long left = 2'000'000;
  bool take(std::size_t pieces) { return (left -= static_cast<long>(pieces)) > 0; }
};

// Whether `answer` is mathematically equal to `gold`. Not symmetric: the answer x = 5 matches the
// gold 5, and a set matches an inequality. Unknown if the comparison needs more than the remaining
// work.
Verdict compare(const Expr& gold, const Expr& answer, Work& work);

// compare.cpp: two scalars.
Verdict compare_scalars(const Expr& a, const Expr& b, Work& work);

// Whether a is b times a constant, which must be positive if requested.
Verdict compare_up_to_factor(const Expr& a, const Expr& b, bool positive, Work& work);

// compare_sets.cpp: at least one is a set, a tuple or an interval.
Verdict compare_sets(const Expr& gold, const Expr& answer, Work& work);

// compare_relations.cpp
Verdict compare_relations(const Expr& gold, const Expr& answer, Work& work);
bool is_equation(const Expr& e);    // a = b, or a = b = c
bool is_assignment(const Expr& e);  // an equation with a name on the left
Expr last_side(const Expr& e);
Expr as_set(const Expr& e);  // 1 < x <= 2 as (1, 2]; unchanged if it does not bound one symbol

// Yes if all are yes, no if one is no, else unknown.
Verdict both(Verdict a, Verdict b);

}  // namespace mgpu::rewards::math
