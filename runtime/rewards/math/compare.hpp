#pragma once

#include <string>
#include <string_view>

#include "runtime/rewards/math/expr.hpp"

namespace mgpu::rewards::math {

enum class Verdict { no, yes, unknown };

// How much may still be done to decide a question; counted in pieces that are looked at, never in
// time, so that every rank decides alike.
struct Work {
  long left = 2'000'000;
  bool take(std::size_t pieces) { return (left -= static_cast<long>(pieces)) > 0; }
};

// Whether `answer` is the same piece of mathematics as `gold`. Not symmetric: an equation x = 5
// answers a question for 5, and a set answers one for an inequality. What takes more than the work
// that is left is unknown.
Verdict compare(const Expr& gold, const Expr& answer, Work& work);

// compare.cpp: two scalars.
Verdict compare_scalars(const Expr& a, const Expr& b, Work& work);

// Whether a is b times a constant, a positive one where that is asked for.
Verdict compare_up_to_factor(const Expr& a, const Expr& b, bool positive, Work& work);

// compare_sets.cpp: at least one is a set, a tuple or an interval.
Verdict compare_sets(const Expr& gold, const Expr& answer, Work& work);

// compare_relations.cpp
Verdict compare_relations(const Expr& gold, const Expr& answer, Work& work);
bool is_equation(const Expr& e);    // a = b, or a = b = c
bool is_assignment(const Expr& e);  // an equation that begins with a name
Expr last_side(const Expr& e);
Expr as_set(const Expr& e);  // 1 < x <= 2 as (1, 2]; itself when it is no bound of one symbol

// Yes if all are, no if one is.
Verdict both(Verdict a, Verdict b);

}  // namespace mgpu::rewards::math
