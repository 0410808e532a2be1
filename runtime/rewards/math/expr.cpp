#include "runtime/rewards/math/expr.hpp"

#include <algorithm>
#include <set>

namespace mgpu::rewards::math {
namespace {

Expr made(Node node) {
  return std::make_shared<const Node>(std::move(node));
}

void collect(const Expr& e, std::set<std::string>& names) {
  if (e->kind == Kind::symbol) names.insert(e->name);
  for (const auto& arg : e->args) collect(arg, names);
}

template <class Is>
bool any_piece(const Expr& e, const Is& is) {
  return is(*e) || std::any_of(e->args.begin(), e->args.end(),
                               [&](const Expr& arg) { return any_piece(arg, is); });
}

}  // namespace

Expr number(Rational value, bool decimal) {
  return made({.kind = Kind::number, .value = std::move(value), .decimal = decimal});
}

Expr symbol(std::string name) {
  return made({.kind = Kind::symbol, .name = std::move(name)});
}

Expr constant(std::string name) {
  return made({.kind = Kind::constant, .name = std::move(name)});
}

Expr call(std::string name, std::vector<Expr> args) {
  return made({.kind = Kind::call, .name = std::move(name), .args = std::move(args)});
}

Expr node(Kind kind, std::vector<Expr> args) {
  return made({.kind = kind, .args = std::move(args)});
}

Expr relation(std::string name, Expr left, Expr right) {
  return made({.kind = Kind::relation,
               .name = std::move(name),
               .args = {std::move(left), std::move(right)}});
}

Expr interval(Expr from, Expr to, bool left_open, bool right_open) {
  return made({.kind = Kind::interval,
               .args = {std::move(from), std::move(to)},
               .left_open = left_open,
               .right_open = right_open});
}

Expr negative(const Expr& a) {
  if (a->kind == Kind::number) return number(-a->value, a->decimal);
  return node(Kind::product, {number(-1), a});
}

Expr difference(const Expr& a, const Expr& b) {
  return node(Kind::sum, {a, negative(b)});
}

Expr quotient(const Expr& a, const Expr& b) {
  return node(Kind::product, {a, node(Kind::power, {b, number(-1)})});
}

bool is_constant(const Expr& e, const char* name) {
  return e->kind == Kind::constant && e->name == name;
}

bool is_relation(const Expr& e) {
  return e->kind == Kind::relation || e->kind == Kind::chain;
}

bool is_set(const Expr& e) {
  return e->kind == Kind::set || e->kind == Kind::interval || e->kind == Kind::join ||
         e->kind == Kind::without || e->kind == Kind::reals;
}

bool same(const Expr& a, const Expr& b) {
  return a->kind == b->kind && a->name == b->name && a->value == b->value &&
         a->left_open == b->left_open && a->right_open == b->right_open &&
         a->columns == b->columns &&
         std::equal(a->args.begin(), a->args.end(), b->args.begin(), b->args.end(), same);
}

bool contains(const Expr& e, Kind kind) {
  return any_piece(e, [&](const Node& piece) { return piece.kind == kind; });
}

bool contains_call(const Expr& e, const std::string& name) {
  return any_piece(
      e, [&](const Node& piece) { return piece.kind == Kind::call && piece.name == name; });
}

std::size_t size_of(const Expr& e) {
  std::size_t size = 1;
  for (const auto& arg : e->args) size += size_of(arg);
  return size;
}

std::vector<std::string> symbols_of(const Expr& e) {
  std::set<std::string> names;
  collect(e, names);
  return {names.begin(), names.end()};
}

}  // namespace mgpu::rewards::math
