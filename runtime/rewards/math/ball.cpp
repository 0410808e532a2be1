#include "runtime/rewards/math/ball.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/rewards/math/exact.hpp"

namespace mgpu::rewards::math {
namespace {

// A few units in the last place: more than the error of any C library function.
constexpr long double kNoise = 2e-18L;
constexpr long double kLargest = 1e300L;
constexpr long double kPi = std::numbers::pi_v<long double>;

using Value = std::optional<Ball>;

Value checked(Complex middle, long double radius) {
  const long double size = std::abs(middle);
  if (!(size < kLargest) || !(radius < kLargest)) return std::nullopt;
  return Ball{middle, radius + size * kNoise};
}

Value sum(const Ball& a, const Ball& b) {
  return checked(a.middle + b.middle,
                 a.radius + b.radius + (std::abs(a.middle) + std::abs(b.middle)) * kNoise);
}

Value product(const Ball& a, const Ball& b) {
  return checked(a.middle * b.middle, std::abs(a.middle) * b.radius +
                                          std::abs(b.middle) * a.radius + a.radius * b.radius);
}

Value inverse(const Ball& a) {
  const long double size = std::abs(a.middle);
  if (!(size > 2 * a.radius) || size == 0) return std::nullopt;
  return checked(Complex(1) / a.middle, a.radius / (size * (size - a.radius)));
}

Value exponential(const Ball& a) {
  if (a.middle.real() > 600 || a.radius > 0.5L) return std::nullopt;
  const auto middle = std::exp(a.middle);
  return checked(middle, std::abs(middle) * (std::expm1(a.radius) + std::abs(a.middle) * kNoise));
}

Value logarithm(const Ball& a) {
  const long double size = std::abs(a.middle);
  if (!(size > 2 * a.radius) || size == 0) return std::nullopt;
  Complex middle = std::log(a.middle);
  // On the negative axis the argument is pi, whatever side rounding errors lead to.
  if (a.middle.real() < 0 && std::abs(a.middle.imag()) <= a.radius)
    middle = Complex(middle.real(), kPi);
  return checked(middle, 2 * a.radius / size);
}

Value ball_power(const Ball& base, const Ball& exponent) {
  const bool real = exponent.middle.imag() == 0 && exponent.radius < 1e-15L;
  const long double e = exponent.middle.real();
  if (std::abs(base.middle) <= base.radius) {
    if (!real || e <= 0) return std::nullopt;
    return Ball{0, std::pow(2 * base.radius, std::min(e, 1.0L))};
  }
  if (real && e == std::round(e) && std::abs(e) <= 64) {
    Value result = Ball{1, 0};
    for (int i = 0; i < std::abs(e) && result; ++i) result = product(*result, base);
    return result && e < 0 ? inverse(*result) : result;
  }
  const auto log = logarithm(base);
  const auto raised = log ? product(*log, exponent) : std::nullopt;
  return raised ? exponential(*raised) : std::nullopt;
}

// f at the middle; near it the derivative is at most `slope`.
template <class F>
Value smooth(const Ball& a, F f, long double slope) {
  const Complex middle = f(a.middle);
  return checked(middle, slope * (a.radius + std::abs(a.middle) * kNoise));
}

Value sine_or_cosine(const Ball& a, bool sine) {
  if (std::abs(a.middle.imag()) > 50 || std::abs(a.middle) > 1e6L) return std::nullopt;
  const long double slope = std::cosh(std::abs(a.middle.imag()) + a.radius);
  return smooth(a, [&](Complex z) { return sine ? std::sin(z) : std::cos(z); }, slope);
}

Value ratio(const Value& top, const Value& bottom) {
  if (!top || !bottom) return std::nullopt;
  const auto below = inverse(*bottom);
  return below ? product(*top, *below) : std::nullopt;
}

Value hyperbolic(const Ball& a, bool sine) {
  if (std::abs(a.middle.real()) > 50) return std::nullopt;
  const long double slope = std::cosh(std::abs(a.middle.real()) + a.radius);
  return smooth(a, [&](Complex z) { return sine ? std::sinh(z) : std::cosh(z); }, slope);
}

bool is_real(const Ball& a) {
  return std::abs(a.middle.imag()) <= a.radius + 1e-15L;
}

Value arc(const std::string& name, const Ball& a) {
  if (!is_real(a)) return std::nullopt;
  const long double x = a.middle.real();
  if (name == "arctan") return smooth(a, [](Complex z) { return Complex(std::atan(z.real())); }, 1);
  const long double room = 1 - std::abs(x);
  if (room < -a.radius) return std::nullopt;
  const long double inside = std::clamp(x, -1.0L, 1.0L);
  const long double value = name == "arcsin" ? std::asin(inside) : std::acos(inside);
  // Near 1 the slope has no bound, but a change of r moves the value by less than 2 sqrt(r).
  const long double r = a.radius + kNoise;
  const long double off = room > 4 * r ? 2 * r / std::sqrt(room) : 4 * std::sqrt(r);
  return checked(value, off);
}

Value rounded_down(const Ball& a, bool up) {
  if (!is_real(a)) return std::nullopt;
  const long double x = a.middle.real();
  const long double result = up ? std::ceil(x) : std::floor(x);
  if (std::abs(x - std::round(x)) <= a.radius) return std::nullopt;
  return checked(result, 0);
}

Value gamma_of_next(const Ball& a) {
  const long double n = std::round(a.middle.real());
  if (!is_real(a) || std::abs(a.middle.real() - n) > a.radius || n < 0 || n > 60)
    return std::nullopt;
  const auto exact = factorial(Rational(static_cast<long>(n)));
  return exact ? checked(to_float(*exact), 0) : std::nullopt;
}

// An arbitrary entire function that depends on the name: equal arguments give equal values,
// different arguments different ones.
Value unknown_function(const std::string& name, const std::vector<Ball>& args) {
  unsigned seed = 2166136261u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 16777619u;
  Value result = Ball{static_cast<long double>(seed % 97) / 7, 0};
  for (std::size_t i = 0; i < args.size() && result; ++i) {
    const long double stretch = 0.3L + static_cast<long double>((seed >> (i % 16)) % 89) / 61;
    const auto inside = product(args[i], Ball{stretch, 0});
    const auto wave = inside ? sine_or_cosine(*inside, true) : std::nullopt;
    const auto weighed = wave ? product(*wave, Ball{static_cast<long double>(i) + 1, 0}) : wave;
    result = weighed ? sum(*result, *weighed) : std::nullopt;
  }
  return result;
}

Value trigonometric(const std::string& name, const Ball& a) {
  const Value one = Ball{1, 0};
  if (name == "sin") return sine_or_cosine(a, true);
  if (name == "cos") return sine_or_cosine(a, false);
  if (name == "tan") return ratio(sine_or_cosine(a, true), sine_or_cosine(a, false));
  if (name == "cot") return ratio(sine_or_cosine(a, false), sine_or_cosine(a, true));
  if (name == "sec") return ratio(one, sine_or_cosine(a, false));
  if (name == "csc") return ratio(one, sine_or_cosine(a, true));
  if (name == "sinh") return hyperbolic(a, true);
  if (name == "cosh") return hyperbolic(a, false);
  if (name == "tanh") return ratio(hyperbolic(a, true), hyperbolic(a, false));
  return arc(name, a);
}

// Functions with jumps or of integers: exact arguments give exact values.
bool is_whole_function(const std::string& name) {
  for (const auto* whole : {"gcd", "lcm", "mod", "floor", "ceil", "binomial", "factorial"})
    if (name == whole) return true;
  return false;
}

Value extreme(const std::string& name, const std::vector<Ball>& args) {
  Ball best = args[0];
  for (const auto& arg : args) {
    if (!is_real(arg)) return std::nullopt;
    const bool more = arg.middle.real() > best.middle.real();
    if (more == (name == "max")) best = arg;
  }
  for (const auto& arg : args) best.radius = std::max(best.radius, arg.radius);
  return best;
}

Value ball_of_call(const std::string& name, const std::vector<Ball>& args) {
  if (args.size() == 1) {
    const Ball& a = args[0];
    if (name == "abs") return checked(std::abs(a.middle), a.radius);
    if (name == "exp") return exponential(a);
    if (name == "factorial") return gamma_of_next(a);
    if (name == "floor" || name == "ceil") return rounded_down(a, name == "ceil");
    for (const auto* known : {"sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh",
                              "arcsin", "arccos", "arctan"})
      if (name == known) return trigonometric(name, a);
  }
  if (name == "log" && args.size() == 2) return ratio(logarithm(args[0]), logarithm(args[1]));
  if ((name == "max" || name == "min") && !args.empty()) return extreme(name, args);
  if (name == "binomial" && args.size() == 2) {
    const auto rest = sum(args[0], {-args[1].middle, args[1].radius});
    const auto n = gamma_of_next(args[0]);
    const auto k = gamma_of_next(args[1]);
    const auto others = rest ? gamma_of_next(*rest) : std::nullopt;
    if (!n || !k || !others) return std::nullopt;
    return ratio(n, product(*k, *others));
  }
  if (name == "gcd" || name == "lcm" || name == "mod") return std::nullopt;
  return unknown_function(name, args);
}

}  // namespace

std::optional<Ball> evaluate(const Expr& e, const Point& point) {
  if (e->kind == Kind::number) return checked(to_float(e->value), 0);
  if (e->kind == Kind::call && is_whole_function(e->name))
    if (const auto exact = exact_value(e)) return checked(to_float(*exact), 0);
  std::vector<Ball> args;
  for (const auto& arg : e->args) {
    const auto value = evaluate(arg, point);
    if (!value) return std::nullopt;
    args.push_back(*value);
  }
  Value result;
  switch (e->kind) {
    case Kind::symbol: {
      const auto at = point.find(e->name);
      return at == point.end() ? std::nullopt : checked(at->second, 0);
    }
    case Kind::constant:
      if (e->name == "pi") return checked(kPi, 0);
      if (e->name == "e") return checked(std::numbers::e_v<long double>, 0);
      if (e->name == "i") return checked(Complex(0, 1), 0);
      return std::nullopt;
    case Kind::sum:
      result = Ball{0, 0};
      for (const auto& arg : args) result = result ? sum(*result, arg) : result;
      return result;
    case Kind::product:
      result = Ball{1, 0};
      for (const auto& arg : args) result = result ? product(*result, arg) : result;
      return result;
    case Kind::power:
      return ball_power(args[0], args[1]);
    case Kind::percent:
      return product(args[0], Ball{0.01L, 0});
    case Kind::call:
      return ball_of_call(e->name, args);
    default:
      return std::nullopt;
  }
}

}  // namespace mgpu::rewards::math
