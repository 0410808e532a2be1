#include <algorithm>
#include <utility>

#include "runtime/rewards/math/compare.hpp"
#include "runtime/rewards/math/exact.hpp"

namespace mgpu::rewards::math {
namespace {

bool only_names(const Expr& e) {
  if (e->kind == Kind::symbol ||
      (e->kind == Kind::constant && e->name != "infinity" && e->name != "pi"))
    return true;
  // f(x), (x, y), xy
  return (e->kind == Kind::call || e->kind == Kind::interval || e->kind == Kind::tuple ||
          e->kind == Kind::product) &&
         std::all_of(e->args.begin(), e->args.end(), only_names);
}

std::string turned(const std::string& name) {
  if (name == "<") return ">";
  if (name == ">") return "<";
  if (name == "<=") return ">=";
  if (name == ">=") return "<=";
  return name;
}

// Left minus right; nothing if the sides are not scalars.
Expr gap(const Expr& relation) {
  for (const auto& side : relation->args)
    if (is_set(side) || side->kind == Kind::tuple || is_relation(side)) return nullptr;
  return difference(relation->args[0], relation->args[1]);
}

Verdict compare_one(const Expr& gold, const Expr& answer, Work& work) {
  const bool straight = gold->name == answer->name;
  const bool flipped = gold->name == turned(answer->name);
  if (!straight && !flipped) return Verdict::no;
  const bool sets = is_set(gold->args[1]) || is_set(answer->args[1]) ||
                    gold->args[1]->kind == Kind::tuple || answer->args[1]->kind == Kind::tuple;
  if (sets) {
    const auto listed = [](const Expr& e) {
      return e->kind == Kind::set || e->kind == Kind::tuple;
    };
    for (const auto& [one, other] : {std::pair(gold, answer), std::pair(answer, gold)})
      if (one->args[1]->kind == Kind::interval && listed(other->args[1])) return Verdict::no;
    return both(compare(gold->args[0], answer->args[0], work),
                compare(gold->args[1], answer->args[1], work));
  }
  const auto a = gap(gold);
  const auto b = gap(answer);
  if (!a || !b) return Verdict::no;
  const bool equation = gold->name == "=" || gold->name == "!=";
  auto verdict = Verdict::no;
  if (straight) verdict = compare_scalars(a, b, work);
  if (verdict != Verdict::yes && flipped) {
    const auto other = compare_scalars(a, negative(b), work);
    if (other != Verdict::no) verdict = other;
  }
  if (verdict == Verdict::no && symbols_of(a) == symbols_of(b) && !symbols_of(a).empty())
    // 2x = 4 and x = 2 are equivalent, and so are 2x < 4 and x < 2
    verdict = compare_up_to_factor(a, straight ? b : negative(b), !equation, work);
  return verdict;
}

// For a relation between a symbol and something else: the side of the symbol.
bool bounds_symbol(const Expr& relation, std::string& name, bool& symbol_left) {
  for (const int side : {0, 1}) {
    if (relation->args[side]->kind != Kind::symbol || !symbols_of(relation->args[1 - side]).empty())
      continue;
    if (!name.empty() && name != relation->args[side]->name) return false;
    name = relation->args[side]->name;
    symbol_left = side == 0;
    return true;
  }
  return false;
}

}  // namespace

bool is_equation(const Expr& e) {
  if (e->kind == Kind::relation) return e->name == "=";
  return e->kind == Kind::chain && std::all_of(e->args.begin(), e->args.end(), is_equation);
}

bool is_assignment(const Expr& e) {
  if (!is_equation(e)) return false;
  return only_names(e->kind == Kind::chain ? e->args[0]->args[0] : e->args[0]);
}

Expr last_side(const Expr& e) {
  return e->kind == Kind::chain ? last_side(e->args.back()) : e->args.back();
}

Expr as_set(const Expr& e) {
  const std::vector<Expr> bounds = e->kind == Kind::chain ? e->args : std::vector<Expr>{e};
  Expr from = negative(constant("infinity"));
  Expr to = constant("infinity");
  bool from_open = true;
  bool to_open = true;
  std::string name;
  for (const auto& bound : bounds) {
    bool left = true;
    if (!bounds_symbol(bound, name, left)) return e;
    const auto& limit = bound->args[left ? 1 : 0];
    const auto sign = left ? bound->name : turned(bound->name);
    if (sign == "!=" && bounds.size() == 1)
      return node(Kind::without, {node(Kind::reals, {}), node(Kind::set, {limit})});
    if (sign == "=" && bounds.size() == 1) return node(Kind::set, {limit});
    if (sign[0] == '>') {
      from = limit;
      from_open = sign == ">";
    } else if (sign[0] == '<') {
      to = limit;
      to_open = sign == "<";
    } else {
      return e;
    }
  }
  return interval(from, to, from_open, to_open);
}

Verdict compare_relations(const Expr& gold, const Expr& answer, Work& work) {
  if (gold->kind == Kind::relation && answer->kind == Kind::relation)
    return compare_one(gold, answer, work);
  if (gold->kind != Kind::chain || answer->kind != Kind::chain ||
      gold->args.size() != answer->args.size())
    return Verdict::no;
  const std::vector<Expr> backwards(answer->args.rbegin(), answer->args.rend());
  auto forth = Verdict::yes;
  auto back = Verdict::yes;
  for (std::size_t i = 0; i < gold->args.size(); ++i) {
    forth = both(forth, compare_one(gold->args[i], answer->args[i], work));
    back = both(back, compare_one(gold->args[i], backwards[i], work));
  }
  return forth == Verdict::no ? back : forth;
}

}  // namespace mgpu::rewards::math
