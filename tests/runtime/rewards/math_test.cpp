#include "runtime/rewards/math/normalize.hpp"
#include "runtime/rewards/math/parse.hpp"
#include "runtime/rewards/math/rational.hpp"
#include "runtime/rewards/math/verify.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rewards::math;

namespace {

Verdict compared(const std::string& gold, const std::string& answer) {
  Work work;
  return compare(parse(normalized(gold), {.repair = true}), parse(normalized(answer), {}), work);
}

}  // namespace

TEST_CASE("rational arithmetic is exact and bounded", "[rewards][math]") {
  CHECK(*add(Rational(1, 3), Rational(1, 6)) == Rational(1, 2));
  CHECK(*power(Rational(2, 3), -3) == Rational(27, 8));
  CHECK(*binomial(60, 30) == Rational(Integer("118264581564861424")));
  CHECK(*parse_decimal("007.250") == Rational(29, 4));
  CHECK_FALSE(power(10, 100'000));
  CHECK_FALSE(power(0, -1));
  CHECK_FALSE(divide(1, 0));
  CHECK_FALSE(factorial(100'000));
  CHECK_FALSE(parse_decimal("1.2.3"));
}

TEST_CASE("decimals are rounded to the even digit in a tie", "[rewards][math]") {
  CHECK(rounded(Rational(1, 8), 2) == Rational(12, 100));
  CHECK(rounded(Rational(3, 8), 2) == Rational(38, 100));
  CHECK(rounded(Rational(-1, 3), 3) == Rational(-333, 1000));
}

TEST_CASE("expressions that are equal everywhere are equal", "[rewards][math]") {
  struct Case {
    const char* gold;
    const char* answer;
  };
  const auto [gold, answer] = GENERATE(values<Case>({
      {"x^2+2x+1", "(x+1)^2"},
      {"\\sin^2 x + \\cos^2 x", "1"},
      {"\\sqrt{x^2}", "|x|"},
      {"\\frac{x^2-1}{x-1}", "x+1"},
      {"\\ln 4", "2\\ln 2"},
      {"\\sqrt{2}+\\sqrt{3}", "\\sqrt{5+2\\sqrt{6}}"},
      {"\\tan x", "\\frac{\\sin x}{\\cos x}"},
      {"\\cos(\\arccos(x))", "x"},
      {"(1+i)^2", "2i"},
      {"\\binom{n}{2}", "\\frac{n(n-1)}{2}"},
      {"2^{200}", "4^{100}"},
      {"\\log_2 8", "3"},
      {"0.\\overline{142857}", "\\frac{1}{7}"},
      {"f(x)+1", "1+f(x)"},
  }));
  CAPTURE(gold, answer);
  CHECK(compared(gold, answer) == Verdict::yes);
}

TEST_CASE("expressions that differ somewhere are not equal", "[rewards][math]") {
  struct Case {
    const char* gold;
    const char* answer;
  };
  const auto [gold, answer] = GENERATE(values<Case>({
      {"\\sqrt{x^2}", "x"},
      {"x+1", "y+1"},
      {"\\sqrt{2}", "1.41421"},
      {"2^{200}", "2^{200}+1"},
      {"f(x)", "g(x)"},
      {"f(x+1)", "f(x)"},
      {"\\pi", "3.14"},
      {"x^2", "x^{2.0001}"},
      {"\\infty", "-\\infty"},
  }));
  CAPTURE(gold, answer);
  CHECK(compared(gold, answer) == Verdict::no);
}

TEST_CASE("sets, intervals, tuples and relations are compared by their meaning",
          "[rewards][math]") {
  CHECK(compared("\\{1,2\\}", "\\{2,1\\}") == Verdict::yes);
  CHECK(compared("(1,2)", "(2,1)") == Verdict::no);
  CHECK(compared("(1,2,3)", "(1,3,2)") == Verdict::no);
  CHECK(compared("[1,2)", "[1,2]") == Verdict::no);
  CHECK(compared("[1,2]\\cup[2,3]", "[1,3]") == Verdict::yes);
  CHECK(compared("\\mathbb{R}\\setminus\\{0\\}", "(-\\infty,0)\\cup(0,\\infty)") == Verdict::yes);
  CHECK(compared("(-\\infty,\\infty)", "(\\infty,\\infty)") == Verdict::no);
  CHECK(compared("x > 2", "(2,\\infty)") == Verdict::yes);
  CHECK(compared("2x > 4", "x > 2") == Verdict::yes);
  CHECK(compared("-2x > 4", "x > -2") == Verdict::no);
  CHECK(compared("2x+y=4", "y=4-2x") == Verdict::yes);
  CHECK(compared("x=5", "5") == Verdict::yes);
  CHECK(compared("x=5", "y=5") == Verdict::no);
  CHECK(compared("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
                 "\\begin{bmatrix}1&2\\\\3&\\frac{8}{2}\\end{bmatrix}") == Verdict::yes);
  CHECK(compared("x = 1 \\pm \\sqrt{2}", "1-\\sqrt{2}, 1+\\sqrt{2}") == Verdict::yes);
}

TEST_CASE("a comparison that needs too much work is undecided", "[rewards][math]") {
  Work work{.left = 10};
  CHECK(compare(parse("x^2+2x+1", {}), parse("(x+1)^2", {}), work) == Verdict::unknown);
}

TEST_CASE("units at the end are dropped, sums are not", "[rewards][math]") {
  CHECK(without_units("5 cm") == "5");
  CHECK(without_units("5\\text{ square meters}") == "5");
  CHECK(without_units("12\\text{ cm}^2") == "12");
  CHECK(without_units("x + m") == "x + m");
  CHECK(without_units("\\text{east}") == "\\text{east}");
}
