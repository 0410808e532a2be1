#include "runtime/rewards/math/parser.hpp"

#include <array>
#include <utility>

namespace mgpu::rewards::math {
namespace {

constexpr int kDeepest = 60;

struct Comparison {
  const char* sign;
  const char* name;
};
constexpr std::array kComparisons = {
    Comparison{"=", "="},      Comparison{"<", "<"},           Comparison{">", ">"},
    Comparison{"\\lt", "<"},   Comparison{"\\gt", ">"},        Comparison{"\\le", "<="},
    Comparison{"\\leq", "<="}, Comparison{"\\leqslant", "<="}, Comparison{"\\ge", ">="},
    Comparison{"\\geq", ">="}, Comparison{"\\geqslant", ">="}, Comparison{"\\ne", "!="},
    Comparison{"\\neq", "!="}, Comparison{"\\in", "="},        Comparison{"\\approx", "~"},
};

const char* comparison(const Token& token) {
  for (const auto& c : kComparisons)
    if (token.is(c.sign)) return c.name;
  return nullptr;
}

bool is_literal(const Expr& e) {
  return e->kind == Kind::number && !e->decimal && is_whole(e->value) && e->value >= 0;
}

// x = 1, 2 means that x is one of them.
Expr list_of_items(std::vector<Expr> items) {
  const auto& first = items.front();
  bool spread =
      first->kind == Kind::relation && first->name == "=" && first->args[0]->kind == Kind::symbol;
  for (std::size_t i = 1; i < items.size(); ++i) spread = spread && !is_relation(items[i]);
  if (!spread) return node(Kind::set, std::move(items));
  std::vector<Expr> values = {first->args[1]};
  values.insert(values.end(), items.begin() + 1, items.end());
  return relation("=", first->args[0], node(Kind::set, std::move(values)));
}

}  // namespace

Parser::Deeper::Deeper(Parser& p) : parser(p) {
  if (++parser.depth_ > kDeepest) {
    --parser.depth_;
    throw Malformed("it is nested too deeply");
  }
}

bool Parser::accept(std::string_view text) {
  if (!is(text)) return false;
  ++at_;
  return true;
}

void Parser::expect(std::string_view text) {
  if (!accept(text)) throw Malformed(std::string(text) + " is missing");
}

Expr Parser::read() {
  auto result = read_list();
  if (now().kind != Token::Kind::end) throw Malformed("unexpected " + now().text);
  return result;
}

std::vector<Expr> Parser::read_items() {
  std::vector<Expr> items = {read_relation()};
  while (is(",") || is(";")) {
    ++at_;
    items.push_back(read_relation());
  }
  return items;
}

Expr Parser::read_list() {
  const Deeper deeper(*this);
  auto items = read_items();
  return items.size() == 1 ? items[0] : list_of_items(std::move(items));
}

Expr Parser::read_relation() {
  auto left = read_sets();
  std::vector<Expr> links;
  while (const char* name = comparison(now())) {
    ++at_;
    auto right = read_sets();
    if (*name == '~') {  // "pi ~ 3.14" means pi; "x ~ 3" means 3
      if (left->kind != Kind::symbol) right = left;
      left = std::move(right);
      continue;
    }
    links.push_back(relation(name, left, right));
    left = std::move(right);
  }
  if (links.empty()) return left;
  return links.size() == 1 ? links[0] : node(Kind::chain, std::move(links));
}

Expr Parser::read_sets() {
  auto left = read_sum();
  for (;;) {
    if (is("\\cap")) throw Unsupported("an intersection");
    if (accept("\\cup")) {
      left = node(Kind::join, {left, read_sum()});
    } else if (accept("\\setminus") || accept("\\backslash")) {
      left = node(Kind::without, {left, read_sum()});
    } else {
      return left;
    }
  }
}

Expr Parser::read_sum() {
  const Deeper deeper(*this);
  std::vector<Expr> terms;
  bool minus = false;
  if (is("\\pm") || is("\\mp")) {
    minus = (sign_ < 0) == is("\\pm");
    ++at_;
  }
  terms.push_back(minus ? negative(read_product()) : read_product());
  for (;;) {
    if (accept("+")) {
      terms.push_back(read_product());
    } else if (accept("-")) {
      terms.push_back(negative(read_product()));
    } else if (is("\\pm") || is("\\mp")) {
      minus = (sign_ < 0) == is("\\pm");
      ++at_;
      terms.push_back(minus ? negative(read_product()) : read_product());
    } else {
      break;
    }
  }
  return terms.size() == 1 ? terms[0] : node(Kind::sum, std::move(terms));
}

Expr Parser::read_product() {
  if (accept("-")) {
    const Deeper deeper(*this);
    return negative(read_product());
  }
  if (accept("+")) {
    const Deeper deeper(*this);
    return read_product();
  }
  auto left = read_implicit_product();
  for (;;) {
    if (accept("\\cdot") || accept("\\times") || accept("*") || accept("\\ast")) {
      left = node(Kind::product, {left, read_signed()});
    } else if (accept("/") || accept("\\div") || accept(":")) {
      left = quotient(left, read_signed());
    } else if (accept("\\bmod") || accept("\\mod")) {
      left = call("mod", {left, read_signed()});
    } else {
      return left;
    }
  }
}

Expr Parser::read_signed() {
  if (accept("-")) {
    const Deeper deeper(*this);
    return negative(read_signed());
  }
  if (accept("+")) {
    const Deeper deeper(*this);
    return read_signed();
  }
  return read_implicit_product();
}

bool Parser::begins_factor() const {
  const auto& token = now();
  switch (token.kind) {
    case Token::Kind::letter:
      return true;
    case Token::Kind::number:
    case Token::Kind::end:
      return false;
    case Token::Kind::sign:
      return token.text == "(" || token.text == "[" || token.text == "{" ||
             (token.text == "|" && bars_ == 0);
    case Token::Kind::command:
      break;
  }
  for (const auto* other :
       {"\\cdot",     "\\times",     "\\ast",   "\\div", "\\pm",  "\\mp",   "\\cup",    "\\cap",
        "\\setminus", "\\backslash", "\\bmod",  "\\mod", "\\}",   "\\\\",   "\\end",    "\\rvert",
        "\\rangle",   "\\rfloor",    "\\rceil", "\\%",   "\\mid", "\\vert", "\\degree", "\\circ"})
    if (token.is(other)) return false;
  return comparison(token) == nullptr;
}

// Mixed numbers: 2\frac{1}{2} and 2 1/2 are two and a half.
Expr Parser::mixed_number(const Expr& whole) {
  const auto begin = at_;
  if (is("\\frac")) {
    const auto fraction = read_factor();
    if (fraction->kind == Kind::product && fraction->args.size() == 2 &&
        is_literal(fraction->args[0]) && fraction->args[1]->kind == Kind::power &&
        is_literal(fraction->args[1]->args[0]))
      return node(Kind::sum, {whole, fraction});
  } else if (now().kind == Token::Kind::number && next().is("/")) {
    const auto top = read_factor();
    ++at_;
    if (now().kind == Token::Kind::number)
      return node(Kind::sum, {whole, quotient(top, read_factor())});
  }
  at_ = begin;
  return nullptr;
}

Expr Parser::read_implicit_product() {
  auto first = read_factor();
  if (is_literal(first))
    if (auto mixed = mixed_number(first)) first = std::move(mixed);
  std::vector<Expr> factors = {std::move(first)};
  while (begins_factor()) factors.push_back(read_factor());
  if (now().kind == Token::Kind::number) {
    // x5 is a product; 2 3 is ambiguous.
    if (factors.back()->kind == Kind::number) throw Malformed("two numbers in a row");
    while (now().kind == Token::Kind::number || begins_factor()) factors.push_back(read_factor());
  }
  return factors.size() == 1 ? factors[0] : node(Kind::product, std::move(factors));
}

Expr Parser::read_factor() {
  const Deeper deeper(*this);
  return read_powers(read_primary());
}

Expr Parser::read_powers(Expr base) {
  for (int i = 0; i < kDeepest; ++i) {
    if (accept("!")) {
      base = call("factorial", {base});
    } else if (accept("\\%") || accept("%")) {
      base = node(Kind::percent, {base});
    } else if (accept("\\degree") || accept("\\circ")) {
      // degrees are a unit
    } else if (is("_") && base->kind == Kind::number) {
      read_subscript();  // the base of the digits, as 101_2
    } else if (accept("^")) {
      if (accept("\\circ") || accept("\\degree")) continue;
      if (is("{") && (next().is("\\circ") || next().is("\\degree"))) {
        at_ += 2;
        expect("}");
        continue;
      }
      Expr exponent;
      if (is("{") || now().kind == Token::Kind::command) {
        exponent = is("{") ? read_group() : read_primary();
      } else if (is("(") && spelling_.repair) {
        exponent = read_primary();
      } else if (now().kind == Token::Kind::number || now().kind == Token::Kind::letter) {
        exponent = read_primary();
      } else {
        throw Malformed("an exponent is missing");
      }
      base = node(Kind::power, {base, exponent});
    } else {
      return base;
    }
  }
  throw Malformed("too many exponents");
}

Expr parse(std::string_view latex, const Spelling& spelling) {
  const auto tokens = tokens_of(latex);
  bool both = false;
  for (const auto& token : tokens) both = both || token.is("\\pm") || token.is("\\mp");
  auto plus = Parser(tokens, spelling, 1).read();
  if (!both) return plus;
  auto minus = Parser(tokens, spelling, -1).read();
  if (plus->kind == Kind::relation && minus->kind == Kind::relation && plus->name == minus->name &&
      same(plus->args[0], minus->args[0]))
    return relation(plus->name, plus->args[0], node(Kind::set, {plus->args[1], minus->args[1]}));
  std::vector<Expr> all;
  for (const auto& side : {plus, minus}) {
    if (side->kind == Kind::set) {
      all.insert(all.end(), side->args.begin(), side->args.end());
    } else {
      all.push_back(side);
    }
  }
  return node(Kind::set, std::move(all));
}

}  // namespace mgpu::rewards::math
