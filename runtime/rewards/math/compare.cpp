#include "runtime/rewards/math/compare.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/rewards/math/ball.hpp"
#include "runtime/rewards/math/exact.hpp"

namespace mgpu::rewards::math {
namespace {

constexpr int kPlaces = 6;        // decimal places to which numbers with a point are compared
constexpr int kProbes = 24;       // points at which expressions with symbols are compared
constexpr int kEnoughProbes = 4;  // needed with a value on both sides
constexpr long double kSharp = 1e-12L;
constexpr std::size_t kMostSymbols = 12;

bool is_atom(const Expr& e) {
  return e->kind == Kind::number;
}
bool is_percent_atom(const Expr& e) {
  return e->kind == Kind::percent && is_atom(e->args[0]);
}
const Expr& inside_percent(const Expr& e) {
  return e->kind == Kind::percent ? e->args[0] : e;
}

// Compares both as printed with six decimal places.
Verdict compare_rounded(const Rational& a, const Expr& b) {
  if (const auto exact = exact_value(b); exact && is_whole(*exact) && !has_decimal(b))
    return a == *exact ? Verdict::yes : Verdict::no;  // an integer is not a rounded value
  if (const auto exact = exact_value(b))
    return rounded(a, kPlaces) == rounded(*exact, kPlaces) ? Verdict::yes : Verdict::no;
  const auto value = evaluate(b, {});
  if (!value) return Verdict::unknown;
  if (std::abs(value->middle.imag()) > value->radius + 1e-9L) return Verdict::no;
  const long double goal = to_float(rounded(a, kPlaces));
  const long double off = std::abs(value->middle.real() - goal);
  const long double half = 0.5e-6L;
  const long double noise = value->radius + std::abs(goal) * 1e-18L;
  if (off + noise < half) return Verdict::yes;
  return off - noise > half ? Verdict::no : Verdict::unknown;
}

Verdict compare_balls(const Ball& a, const Ball& b) {
  const long double off = std::abs(a.middle - b.middle);
  const long double noise = a.radius + b.radius;
  if (off > noise) return Verdict::no;
  return noise <= kSharp * std::max(1.0L, std::abs(a.middle)) ? Verdict::yes : Verdict::unknown;
}

// Random points with a fixed seed: numbers of both signs, or integers if there are factorials.
std::vector<Point> places(const Expr& a, const Expr& b, const std::vector<std::string>& names) {
  const bool whole = contains_call(a, "factorial") || contains_call(b, "factorial") ||
                     contains_call(a, "binomial") || contains_call(b, "binomial");
  std::mt19937 random(20250101);
  std::vector<Point> points(kProbes);
  for (std::size_t i = 0; i < points.size(); ++i)
    for (const auto& name : names) {
      const auto drawn = random();
      const auto size = static_cast<long double>(drawn % 100003) / 25001.0L + 0.013L;
      const auto sign = (drawn >> 20) % 2 == 0 ? 1.0L : -1.0L;
      const auto scale = i % 3 == 0 ? 0.24L : 1;  // below 1, where inverse functions have values
      points[i][name] = whole ? static_cast<long double>(drawn % 12 + 1) : size * scale * sign;
    }
  return points;
}

Verdict probe(const Expr& a, const Expr& b, const std::vector<std::string>& names, Work& work) {
  int agreed = 0;
  for (const auto& point : places(a, b, names)) {
    if (!work.take(size_of(a) + size_of(b))) return Verdict::unknown;
    const auto left = evaluate(a, point);
    const auto right = evaluate(b, point);
    if (!left || !right) continue;
    const auto verdict = compare_balls(*left, *right);
    if (verdict == Verdict::no) return Verdict::no;
    if (verdict == Verdict::yes) ++agreed;
  }
  return agreed >= kEnoughProbes ? Verdict::yes : Verdict::unknown;
}

std::vector<std::string> symbols_of_both(const Expr& a, const Expr& b) {
  auto names = symbols_of(a);
  for (const auto& name : symbols_of(b)) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Adjacent letters a, s and k are the word ask.
bool word_of(const Expr& e, std::string& word) {
  if (e->kind == Kind::symbol || (e->kind == Kind::constant && e->name != "infinity")) {
    word += e->name;
    return true;
  }
  return e->kind == Kind::product &&
         std::all_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return word_of(arg, word); });
}

bool same_word(const Expr& a, const Expr& b) {
  std::string left;
  std::string right;
  return word_of(a, left) && word_of(b, right) && left == right;
}

Verdict compare_matrices(const Expr& a, const Expr& b, Work& work) {
  if (a->kind != b->kind || a->columns != b->columns || a->args.size() != b->args.size())
    return Verdict::no;
  auto verdict = Verdict::yes;
  for (std::size_t i = 0; i < a->args.size(); ++i)
    verdict = both(verdict, compare(a->args[i], b->args[i], work));
  return verdict;
}

// +1 or -1 for an infinite value.
int infinite_sign(const Expr& e) {
  if (is_constant(e, "infinity")) return 1;
  if (e->kind != Kind::product || e->args.size() != 2 || !is_constant(e->args[1], "infinity") ||
      e->args[0]->kind != Kind::number)
    return 0;
  return e->args[0]->value < 0 ? -1 : 1;
}

bool divides_by_zero(const Expr& e) {
  if (e->kind == Kind::power && e->args[1]->kind == Kind::number && e->args[1]->value < 0) {
    const auto base = exact_value(e->args[0]);
    if (base && *base == 0) return true;
  }
  return std::any_of(e->args.begin(), e->args.end(), divides_by_zero);
}

Verdict compare_percents(const Expr& a, const Expr& b) {
  const auto& left = inside_percent(a);
  const auto& right = inside_percent(b);
  const bool whole =
      !left->decimal && !right->decimal && is_whole(left->value) && is_whole(right->value);
  if (whole && left->value == right->value) return Verdict::yes;  // 9% matches 9
  return *exact_value(a) == *exact_value(b) ? Verdict::yes : Verdict::no;
}

}  // namespace

Verdict both(Verdict a, Verdict b) {
  if (a == Verdict::no || b == Verdict::no) return Verdict::no;
  return a == Verdict::unknown || b == Verdict::unknown ? Verdict::unknown : Verdict::yes;
}

Verdict compare_up_to_factor(const Expr& a, const Expr& b, bool positive, Work& work) {
  const auto names = symbols_of_both(a, b);
  if (names.empty() || names.size() > kMostSymbols) return Verdict::unknown;
  const auto ratio = quotient(a, b);
  std::optional<Ball> first;
  int agreed = 0;
  for (const auto& point : places(a, b, names)) {
    if (!work.take(size_of(ratio))) return Verdict::unknown;
    const auto value = evaluate(ratio, point);
    if (!value) continue;
    if (!first) first = value;
    const auto verdict = compare_balls(*first, *value);
    if (verdict == Verdict::no) return Verdict::no;
    if (verdict == Verdict::yes) ++agreed;
  }
  if (agreed < kEnoughProbes || std::abs(first->middle) <= first->radius) return Verdict::unknown;
  return positive && first->middle.real() < 0 ? Verdict::no : Verdict::yes;
}

Verdict compare_scalars(const Expr& a, const Expr& b, Work& work) {
  if (!work.take(size_of(a) + size_of(b))) return Verdict::unknown;
  if (same(a, b) || same_word(a, b)) return Verdict::yes;
  if (contains(a, Kind::matrix) || contains(b, Kind::matrix)) return compare_matrices(a, b, work);
  const bool left_atom = is_atom(a) || is_percent_atom(a);
  const bool right_atom = is_atom(b) || is_percent_atom(b);
  const auto left = exact_value(a);
  const auto right = exact_value(b);
  if ((left_atom && has_decimal(a) && left) || (right_atom && has_decimal(b) && right)) {
    const auto names = symbols_of(left_atom && has_decimal(a) ? b : a);
    if (!names.empty()) return Verdict::no;
    return left_atom && has_decimal(a) ? compare_rounded(*left, b) : compare_rounded(*right, a);
  }
  if (left_atom && right_atom && left && right) return compare_percents(a, b);
  if (left && right) return *left == *right ? Verdict::yes : Verdict::no;
  if (const int x = infinite_sign(a), y = infinite_sign(b); x != 0 || y != 0)
    return x == y ? Verdict::yes : Verdict::no;
  if (divides_by_zero(b)) return Verdict::no;
  const auto names = symbols_of_both(a, b);
  if (names.size() > kMostSymbols) return Verdict::unknown;
  if (!names.empty()) return probe(a, b, names, work);
  const auto x = evaluate(a, {});
  const auto y = evaluate(b, {});
  return x && y ? compare_balls(*x, *y) : Verdict::unknown;
}

Verdict compare(const Expr& gold, const Expr& answer, Work& work) {
  if (!work.take(1)) return Verdict::unknown;
  if (same(gold, answer)) return Verdict::yes;
  Expr a = gold;
  Expr b = answer;
  const bool assigned = is_assignment(a);
  // In x = 1 + 1 = 2 only the first and the last side matter.
  if (assigned && a->kind == Kind::chain) a = relation("=", a->args[0]->args[0], last_side(a));
  if (is_assignment(b) && b->kind == Kind::chain)
    b = relation("=", b->args[0]->args[0], last_side(b));
  if (is_equation(b) && !is_equation(a)) {
    b = last_side(b);
  } else if (assigned && !is_equation(b)) {
    a = last_side(a);
  }
  if (is_relation(a) && is_set(b)) a = as_set(a);
  if (same(a, b)) return Verdict::yes;
  if (is_relation(a) && is_relation(b)) return compare_relations(a, b, work);
  if (is_relation(a) || is_relation(b)) return Verdict::no;
  const auto many = [](const Expr& e) { return is_set(e) || e->kind == Kind::tuple; };
  if (many(a) || many(b)) return compare_sets(a, b, work);
  return compare_scalars(a, b, work);
}

}  // namespace mgpu::rewards::math
