#include "runtime/rewards/math/rational.hpp"

#include <cmath>
#include <string>

namespace mgpu::rewards::math {
namespace {

namespace mp = boost::multiprecision;

constexpr int kLargestFactorial = 400;
constexpr std::size_t kMostDigits = 1000;

unsigned bits_of(const Integer& value) {
  return value == 0 ? 0 : mp::msb(mp::abs(value)) + 1;
}

unsigned bits_of(const Rational& value) {
  return std::max(bits_of(mp::numerator(value)), bits_of(mp::denominator(value)));
}

std::optional<Rational> if_small(Rational value) {
  if (bits_of(value) > kMostBits) return std::nullopt;
  return value;
}

}  // namespace

bool is_whole(const Rational& value) {
  return mp::denominator(value) == 1;
}

std::optional<Rational> add(const Rational& a, const Rational& b) {
  return if_small(a + b);
}

std::optional<Rational> multiply(const Rational& a, const Rational& b) {
  return if_small(a * b);
}

std::optional<Rational> divide(const Rational& a, const Rational& b) {
  if (b == 0) return std::nullopt;
  return if_small(a / b);
}

std::optional<Rational> power(const Rational& base, const Rational& exponent) {
  if (!is_whole(exponent)) return std::nullopt;
  const bool down = exponent < 0;
  if (base == 0) {
    if (down) return std::nullopt;
    return Rational(exponent == 0 ? 1 : 0);
  }
  const Integer times = mp::abs(mp::numerator(exponent));
  if (base == 1 || times == 0) return Rational(1);
  if (base == -1) return Rational(times % 2 == 0 ? 1 : -1);
  if (times > kMostBits) return std::nullopt;
  const auto n = times.convert_to<unsigned>();
  if (static_cast<std::uint64_t>(bits_of(base) - 1) * n > kMostBits) return std::nullopt;
  const Rational raised(mp::pow(mp::numerator(base), n), mp::pow(mp::denominator(base), n));
  return if_small(down ? Rational(1 / raised) : raised);
}

std::optional<Rational> factorial(const Rational& n) {
  if (!is_whole(n) || n < 0 || n > kLargestFactorial) return std::nullopt;
  Integer product = 1;
  const int last = mp::numerator(n).convert_to<int>();
  for (int i = 2; i <= last; ++i) product *= i;
  return if_small(Rational(product));
}

std::optional<Rational> binomial(const Rational& n, const Rational& k) {
  if (!is_whole(n) || !is_whole(k) || n < 0) return std::nullopt;
  if (k < 0 || k > n) return Rational(0);
  const Rational least = std::min(k, Rational(n - k));
  if (least > kLargestFactorial) return std::nullopt;
  const int steps = mp::numerator(least).convert_to<int>();
  const Integer top = mp::numerator(n);
  Integer result = 1;
  for (int i = 1; i <= steps; ++i) {
    result = result * (top - steps + i) / i;
    if (bits_of(result) > kMostBits) return std::nullopt;
  }
  return Rational(result);
}

Rational floor(const Rational& value) {
  const Integer top = mp::numerator(value);
  const Integer bottom = mp::denominator(value);
  Integer whole = top / bottom;
  if (top < 0 && whole * bottom != top) whole -= 1;
  return Rational(whole);
}

Rational rounded(const Rational& value, int digits) {
  const Rational scale(mp::pow(Integer(10), static_cast<unsigned>(digits)));
  const Rational scaled = value * scale;
  Rational whole = floor(scaled);
  const Rational rest = scaled - whole;
  const Rational half(1, 2);
  if (rest > half || (rest == half && mp::numerator(whole) % 2 != 0)) whole += 1;
  return whole / scale;
}

std::optional<Rational> parse_decimal(std::string_view text) {
  std::string digits;
  std::optional<std::size_t> after;
  for (const char c : text) {
    if (c == '.') {
      if (after) return std::nullopt;
      after = 0;
    } else if (c >= '0' && c <= '9') {
      digits += c;
      if (after) ++*after;
    } else {
      return std::nullopt;
    }
  }
  if (digits.empty() || digits.size() > kMostDigits) return std::nullopt;
  const auto first = digits.find_first_not_of('0');  // a leading 0 would mean octal
  const Integer whole(first == digits.npos ? "0" : digits.substr(first));
  return if_small(Rational(whole, mp::pow(Integer(10), static_cast<unsigned>(after.value_or(0)))));
}

long double to_float(const Rational& value) {
  // Quotient of the leading bits: both sides may be beyond a float's range.
  Integer top = mp::numerator(value);
  Integer bottom = mp::denominator(value);
  if (top == 0) return 0;
  const bool negative = top < 0;
  if (negative) top = -top;
  const int shift = 80 - (static_cast<int>(bits_of(top)) - static_cast<int>(bits_of(bottom)));
  if (shift > 0) {
    top <<= shift;
  } else {
    bottom <<= -shift;
  }
  const Integer quotient = top / bottom;
  const auto size = std::ldexp(quotient.convert_to<long double>(), -shift);
  return negative ? -size : size;
}

}  // namespace mgpu::rewards::math
