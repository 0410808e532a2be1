#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "runtime/rewards/math/ball.hpp"
#include "runtime/rewards/math/compare.hpp"

namespace mgpu::rewards::math {
namespace {

constexpr std::size_t kMostElements = 64;
constexpr long double kEndless = std::numeric_limits<long double>::infinity();

using Elements = std::vector<Expr>;

bool is_open_pair(const Expr& e) {
  return e->kind == Kind::interval && e->left_open && e->right_open;
}

// What can be listed: the elements of a set or tuple, (1,2) as a pair, a scalar alone.
std::optional<Elements> elements(const Expr& e) {
  if (e->kind == Kind::set || e->kind == Kind::tuple || is_open_pair(e)) return e->args;
  if (e->kind == Kind::interval || e->kind == Kind::join || e->kind == Kind::without ||
      e->kind == Kind::reals)
    return std::nullopt;
  return Elements{e};
}

Elements without_twins(const Elements& all, Work& work) {
  Elements kept;
  for (const auto& e : all)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const Expr& other) { return compare(other, e, work) == Verdict::yes; }))
      kept.push_back(e);
  return kept;
}

Verdict in_order(const Elements& gold, const Elements& answer, Work& work) {
  auto verdict = gold.size() == answer.size() ? Verdict::yes : Verdict::no;
  for (std::size_t i = 0; i < gold.size() && verdict != Verdict::no; ++i)
    verdict = both(verdict, compare(gold[i], answer[i], work));
  return verdict;
}

Verdict in_any_order(const Elements& gold, const Elements& answer, Work& work) {
  if (gold.size() != answer.size()) return Verdict::no;
  std::vector<bool> used(answer.size(), false);
  auto result = Verdict::yes;
  for (const auto& element : gold) {
    auto found = Verdict::no;
    for (std::size_t i = 0; i < answer.size(); ++i) {
      if (used[i]) continue;
      const auto verdict = compare(element, answer[i], work);
      if (verdict == Verdict::unknown) found = Verdict::unknown;
      if (verdict != Verdict::yes) continue;
      used[i] = true;
      found = Verdict::yes;
      break;
    }
    result = both(result, found);
  }
  return result;
}

// A piece of the line between two numbers.
struct Piece {
  long double from = 0;
  long double to = 0;
  bool from_open = false;
  bool to_open = false;
  friend bool operator==(const Piece& a, const Piece& b) {
    const auto near = [](long double x, long double y) {
      if (std::isinf(x) || std::isinf(y)) return x == y;
      return std::abs(x - y) <= 1e-12L * std::max(1.0L, std::abs(x));
    };
    return near(a.from, b.from) && near(a.to, b.to) && a.from_open == b.from_open &&
           a.to_open == b.to_open;
  }
};
using Pieces = std::vector<Piece>;

std::optional<long double> place(const Expr& e) {
  if (is_constant(e, "infinity")) return kEndless;
  if (e->kind == Kind::product && e->args.size() == 2 && is_constant(e->args[1], "infinity") &&
      e->args[0]->kind == Kind::number)
    return e->args[0]->value < 0 ? -kEndless : kEndless;
  const auto value = evaluate(e, {});
  if (!value || std::abs(value->middle.imag()) > 1e-12L) return std::nullopt;
  return value->middle.real();
}

std::optional<Pieces> pieces(const Expr& e);

// The line without some points.
std::optional<Pieces> cut(Pieces whole, const Elements& points) {
  for (const auto& point : points) {
    const auto at = place(point);
    if (!at) return std::nullopt;
    Pieces rest;
    for (const auto& piece : whole) {
      if (*at < piece.from || *at > piece.to) {
        rest.push_back(piece);
        continue;
      }
      if (piece.from < *at) rest.push_back({piece.from, *at, piece.from_open, true});
      if (*at < piece.to) rest.push_back({*at, piece.to, true, piece.to_open});
    }
    whole = std::move(rest);
  }
  return whole;
}

Pieces merged(Pieces all) {
  std::sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) {
    return a.from != b.from ? a.from < b.from : a.from_open < b.from_open;
  });
  Pieces out;
  for (const auto& piece : all) {
    if (!out.empty()) {
      auto& last = out.back();
      const bool touches =
          piece.from < last.to || (piece.from == last.to && !(piece.from_open && last.to_open));
      if (touches) {
        if (piece.to > last.to || (piece.to == last.to && !piece.to_open)) {
          last.to = piece.to;
          last.to_open = piece.to_open;
        }
        continue;
      }
    }
    out.push_back(piece);
  }
  return out;
}

std::optional<Pieces> pieces(const Expr& e) {
  if (e->kind == Kind::reals) return Pieces{{-kEndless, kEndless, true, true}};
  if (e->kind == Kind::interval) {
    const auto from = place(e->args[0]);
    const auto to = place(e->args[1]);
    if (!from || !to || *from > *to) return std::nullopt;
    return Pieces{
        {*from, *to, e->left_open || std::isinf(*from), e->right_open || std::isinf(*to)}};
  }
  if (e->kind == Kind::set) {
    Pieces points;
    for (const auto& element : e->args) {
      const auto at = place(element);
      if (!at) return std::nullopt;
      points.push_back({*at, *at, false, false});
    }
    return points;
  }
  if (e->kind == Kind::join) {
    auto left = pieces(e->args[0]);
    const auto right = pieces(e->args[1]);
    if (!left || !right) return std::nullopt;
    left->insert(left->end(), right->begin(), right->end());
    return merged(std::move(*left));
  }
  if (e->kind == Kind::without && e->args[1]->kind == Kind::set) {
    auto whole = pieces(e->args[0]);
    return whole ? cut(std::move(*whole), e->args[1]->args) : std::nullopt;
  }
  return std::nullopt;
}

Verdict compare_intervals(const Expr& a, const Expr& b, Work& work) {
  if (a->left_open != b->left_open || a->right_open != b->right_open) return Verdict::no;
  return in_order(a->args, b->args, work);
}

}  // namespace

Verdict compare_sets(const Expr& gold, const Expr& answer, Work& work) {
  if (gold->args.size() > kMostElements || answer->args.size() > kMostElements)
    return Verdict::unknown;
  if (gold->kind == Kind::interval && answer->kind == Kind::interval &&
      compare_intervals(gold, answer, work) == Verdict::yes)
    return Verdict::yes;
  auto left = elements(gold);
  auto right = elements(answer);
  if (left && right && (gold->kind != Kind::interval || answer->kind != Kind::interval)) {
    if (gold->kind == Kind::set) left = without_twins(*left, work);
    if (answer->kind == Kind::set && gold->kind == Kind::set) right = without_twins(*right, work);
    // A gold with an order wants it, one without takes any.
    return gold->kind == Kind::set || left->size() == 1 ? in_any_order(*left, *right, work)
                                                        : in_order(*left, *right, work);
  }
  if (!is_set(gold) || !is_set(answer)) return Verdict::no;
  const auto x = pieces(gold);
  const auto y = pieces(answer);
  if (x && y) return merged(*x) == merged(*y) ? Verdict::yes : Verdict::no;
  if (gold->kind == Kind::interval && answer->kind == Kind::interval)
    return compare_intervals(gold, answer, work);
  if (gold->kind == answer->kind) return in_order(gold->args, answer->args, work);
  return Verdict::unknown;
}

}  // namespace mgpu::rewards::math
