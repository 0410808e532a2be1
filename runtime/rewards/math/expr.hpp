#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/rewards/math/rational.hpp"

namespace mgpu::rewards::math {

enum class Kind {
  number,    // value; decimal: written with a point
  symbol,    // name; of one letter or more, lower case
  constant,  // name: pi, e, i, infinity
  sum,       // args
  product,   // args
  power,     // args: base, exponent
  call,      // name: sin, log, abs, ... or an unknown function
  percent,   // args: the value to divide by 100
  set,       // args in the order they were written; \{1,2\} and 1,2
  tuple,     // args
  interval,  // args: its ends; left_open, right_open
  join,      // args: the sets of a union
  without,   // args: a set, and the set to subtract
  reals,     //
  matrix,    // args row by row; columns
  relation,  // name: = < > <= >= !=; args: left, right
  chain,     // args: relations, a < b < c
};

struct Node;
using Expr = std::shared_ptr<const Node>;  // never null

// An expression as written; nothing is simplified.
struct Node {
  Kind kind = Kind::number;
  std::string name{};
  std::vector<Expr> args{};
  Rational value{};
  bool decimal = false;
  bool left_open = false;
  bool right_open = false;
  std::size_t columns = 0;
};

Expr number(Rational value, bool decimal = false);
Expr symbol(std::string name);
Expr constant(std::string name);
Expr call(std::string name, std::vector<Expr> args);
Expr node(Kind kind, std::vector<Expr> args);
Expr relation(std::string name, Expr left, Expr right);
Expr interval(Expr from, Expr to, bool left_open, bool right_open);

Expr negative(const Expr& a);
Expr difference(const Expr& a, const Expr& b);
Expr quotient(const Expr& a, const Expr& b);

bool is_constant(const Expr& e, const char* name);
bool is_relation(const Expr& e);          // or a chain
bool is_set(const Expr& e);               // set, interval, join, without, reals
bool same(const Expr& a, const Expr& b);  // structurally equal
bool contains(const Expr& e, Kind kind);
bool contains_call(const Expr& e, const std::string& name);

// The number of nodes.
std::size_t size_of(const Expr& e);

// The names of all symbols, each once, sorted.
std::vector<std::string> symbols_of(const Expr& e);

}  // namespace mgpu::rewards::math
