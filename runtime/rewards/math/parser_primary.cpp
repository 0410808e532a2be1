#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/rewards/math/exact.hpp"
#include "runtime/rewards/math/parser.hpp"

namespace mgpu::rewards::math {
namespace {

// Named symbols: Greek letters and geometric marks.
constexpr std::array kSymbols = {
    "alpha",  "beta",     "gamma", "delta",   "epsilon", "varepsilon", "zeta",   "eta",
    "theta",  "vartheta", "iota",  "kappa",   "lambda",  "mu",         "nu",     "xi",
    "rho",    "varrho",   "sigma", "tau",     "upsilon", "phi",        "varphi", "chi",
    "psi",    "omega",    "Gamma", "Delta",   "Theta",   "Lambda",     "Xi",     "Pi",
    "Sigma",  "Phi",      "Psi",   "Omega",   "ell",     "hbar",       "angle",  "triangle",
    "square", "prime",    "aleph", "Upsilon",
};

// Commands whose values are not computed.
constexpr std::array kUndecided = {
    "\\int",   "\\iint", "\\oint", "\\sum", "\\prod", "\\lim", "\\partial",
    "\\nabla", "\\det",  "\\Re",   "\\Im",  "\\arg",  "\\sup",
};

constexpr std::string_view kFunctionLetters = "fghpcqFGHPCQOT";

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

Expr Parser::read_primary() {
  const Deeper deeper(*this);
  const auto& token = now();
  switch (token.kind) {
    case Token::Kind::number:
      ++at_;
      return number(token.value, token.decimal);
    case Token::Kind::letter:
      return read_letter();
    case Token::Kind::command:
      return read_command();
    case Token::Kind::end:
      throw Malformed("the end is too early");
    case Token::Kind::sign:
      break;
  }
  if (is("(") || is("[")) return read_round_or_square();
  if (is("{")) return read_group();
  if (is("|")) return read_bars("|");
  throw Malformed("unexpected " + token.text);
}

Expr Parser::read_group() {
  expect("{");
  const int bars = std::exchange(bars_, 0);
  auto inside = read_list();
  bars_ = bars;
  expect("}");
  return inside;
}

Expr Parser::read_argument() {
  if (is("{")) return read_group();
  if (!spelling_.repair) throw Malformed("an argument without braces");
  if (now().kind == Token::Kind::number && now().text.size() == 1) {
    ++at_;
    return number(tokens_[at_ - 1].value);
  }
  if (is("(")) return read_round_or_square();
  if (now().kind == Token::Kind::letter) return read_letter();
  throw Malformed("an argument is missing");
}

// _1, _{12}, _n as a part of a name
std::string Parser::read_subscript() {
  expect("_");
  std::string name = "_";
  if (!accept("{")) {
    if (now().kind == Token::Kind::end || now().kind == Token::Kind::sign)
      throw Malformed("an index is missing");
    name += now().text;
    ++at_;
    return name;
  }
  while (!is("}")) {
    if (now().kind == Token::Kind::end) throw Malformed("an index is not closed");
    name += now().text;
    ++at_;
  }
  ++at_;
  return name;
}

Expr Parser::read_letter() {
  const std::string letter = now().text;
  if (spelling_.repair && letter == "s" && at_ + 3 < tokens_.size() && tokens_[at_ + 1].is("q") &&
      tokens_[at_ + 2].is("r") && tokens_[at_ + 3].is("t")) {
    at_ += 4;
    return node(Kind::power, {read_argument(), number(Rational(1, 2))});
  }
  ++at_;
  if (is("_")) return symbol(lower(letter) + read_subscript());
  if (is("(") && kFunctionLetters.find(letter) != kFunctionLetters.npos) {
    ++at_;
    auto args = read_items();
    expect(")");
    return call(lower(letter), std::move(args));
  }
  if (letter == "e" || letter == "i") return constant(letter);
  return symbol(lower(letter));
}

// (1,2) can be an interval or a point; compare() decides. (1,2,3) is a tuple.
Expr Parser::read_round_or_square() {
  const bool left_open = is("(");
  ++at_;
  const int bars = std::exchange(bars_, 0);
  auto items = read_items();
  bars_ = bars;
  const bool right_open = is(")");
  if (!right_open && !is("]")) throw Malformed("a bracket is not closed");
  ++at_;
  if (items.size() == 1 && left_open == right_open) return items[0];
  if (items.size() == 2) {  // the ends of an interval ascend
    const auto from = exact_value(items[0]);
    const auto to = exact_value(items[1]);
    const bool falls = from && to && *from > *to;
    if (falls && left_open != right_open) throw Malformed("an interval that falls");
    if (falls) return node(Kind::tuple, std::move(items));
  }
  if (items.size() == 2) return interval(items[0], items[1], left_open, right_open);
  if (items.size() == 1 || left_open != right_open) throw Malformed("brackets do not match");
  return node(Kind::tuple, std::move(items));
}

Expr Parser::read_set_braces() {
  expect("\\{");
  if (accept("\\}")) return node(Kind::set, {});
  const int bars = std::exchange(bars_, 1);
  auto items = read_items();
  bars_ = bars;
  if (is("|") || is("\\mid") || is("\\vert")) throw Unsupported("a set by a condition");
  expect("\\}");
  for (const auto& item : items)
    if (item->kind == Kind::relation && item->name != "=")
      throw Unsupported("a set by a condition");
  return node(Kind::set, std::move(items));
}

Expr Parser::read_bars(std::string_view closing) {
  ++at_;
  ++bars_;
  auto inside = read_sum();
  --bars_;
  expect(closing);
  return call("abs", {std::move(inside)});
}

// \frac{dy}{dx} is a name; \frac{d}{dx} is applied to what follows.
Expr Parser::read_fraction() {
  ++at_;
  const auto begin = at_;
  auto top = read_argument();
  const auto middle = at_;
  auto bottom = read_argument();
  if (tokens_[begin + 1].is("d") && tokens_[middle + 1].is("d") && at_ - middle > 3) {
    if (middle - begin == 3) throw Unsupported("a derivative");
    std::string name;
    for (auto i = begin; i < at_; ++i) name += tokens_[i].text;
    return symbol(name);
  }
  return quotient(top, bottom);
}

Expr Parser::read_root() {
  ++at_;
  Expr degree = number(2);
  if (accept("[")) {
    degree = read_sum();
    expect("]");
  }
  return node(Kind::power, {read_argument(), quotient(number(1), degree)});
}

Expr Parser::read_words() {
  const bool set = is("\\mathbb");
  ++at_;
  const std::string words = now().text;
  ++at_;
  std::string name;
  for (const char c : words)
    if (c != ' ' && c != '(' && c != ')' && c != '{' && c != '}') name += c;
  if (name.empty()) throw Malformed("words without letters");
  if (set && name == "R") return node(Kind::reals, {});
  if (set) return symbol("set of " + name);
  name = lower(name);
  if (name == "e" || name == "i") return constant(name);
  if (is_function_name(name)) return read_function(name);
  if (name == "gcd" || name == "lcm" || name == "max" || name == "min") return read_many(name);
  if (const auto value = parse_decimal(name)) return number(*value, name.find('.') != name.npos);
  if (is("(") && words.size() > 1) return call(name, {read_primary()});
  return symbol(name);
}

Expr Parser::read_decorated() {
  const auto mark = now().text.substr(1);
  ++at_;
  std::string name = mark == "overline" ? "bar{" : mark + "{";
  expect("{");
  while (!is("}")) {
    if (now().kind == Token::Kind::end || is("{")) throw Malformed("a mark is not closed");
    name += now().text;
    ++at_;
  }
  ++at_;
  return symbol(lower(name) + "}");
}

Expr Parser::read_command() {
  const std::string& name = now().text;
  if (name == "\\frac") return read_fraction();
  if (name == "\\sqrt") return read_root();
  if (name == "\\{") return read_set_braces();
  if (name == "\\lvert") return read_bars("\\rvert");
  if (name == "\\vert") return read_bars("\\vert");
  if (name == "\\text" || name == "\\operatorname" || name == "\\mathbb") return read_words();
  if (name == "\\begin") return read_environment();
  if (name == "\\log" || name == "\\ln" || name == "\\lg") return read_logarithm();
  if (name == "\\gcd" || name == "\\lcm" || name == "\\max" || name == "\\min") {
    ++at_;
    return read_many(tokens_[at_ - 1].text.substr(1));
  }
  if (is_function_name(std::string_view(name).substr(1))) {
    ++at_;
    return read_function(tokens_[at_ - 1].text.substr(1));
  }
  for (const auto* mark : {"\\overline", "\\bar", "\\vec", "\\hat", "\\tilde", "\\widehat"})
    if (name == mark) return read_decorated();
  if (name == "\\binom") {
    ++at_;
    auto n = read_argument();
    return call("binomial", {n, read_argument()});
  }
  for (const auto* shape : {"floor", "ceil"}) {
    if (name != fmt::format("\\l{}", shape)) continue;
    ++at_;
    auto inside = read_sum();
    expect(fmt::format("\\r{}", shape));
    return call(shape, {std::move(inside)});
  }
  if (accept("\\langle")) {
    auto items = read_items();
    expect("\\rangle");
    return node(Kind::tuple, std::move(items));
  }
  if (accept("\\boxed") || accept("\\fbox")) return read_group();
  if (accept("\\pi")) return constant("pi");
  if (accept("\\infty")) return constant("infinity");
  if (accept("\\emptyset") || accept("\\varnothing")) return node(Kind::set, {});
  if (std::find(kSymbols.begin(), kSymbols.end(), name.substr(1)) != kSymbols.end()) {
    ++at_;
    const std::string symbol_name = tokens_[at_ - 1].text.substr(1);
    return symbol("\\" + symbol_name + (is("_") ? read_subscript() : ""));
  }
  if (std::find(kUndecided.begin(), kUndecided.end(), name) != kUndecided.end())
    throw Unsupported("the value of " + name + " is not decided here");
  throw Malformed("unexpected " + name);
}

}  // namespace mgpu::rewards::math
