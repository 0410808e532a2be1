#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <optional>
#include <string_view>

namespace mgpu::rewards::math {

using Integer = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;

// Numerator and denominator of a result have at most this many bits; otherwise there is no result.
inline constexpr unsigned kMostBits = 4096;

bool is_whole(const Rational& value);

// Sum, product and quotient; nothing if the result is too large, or for a division by zero.
std::optional<Rational> add(const Rational& a, const Rational& b);
std::optional<Rational> multiply(const Rational& a, const Rational& b);
std::optional<Rational> divide(const Rational& a, const Rational& b);

// `base` to an integer exponent; nothing for 0 to a negative exponent.
std::optional<Rational> power(const Rational& base, const Rational& exponent);
std::optional<Rational> factorial(const Rational& n);
std::optional<Rational> binomial(const Rational& n, const Rational& k);

Rational floor(const Rational& value);

// Rounded to `digits` decimal places, ties to even.
Rational rounded(const Rational& value, int digits);

// Digits with at most one point, such as 12, 0.5, .5, as an exact value.
std::optional<Rational> parse_decimal(std::string_view text);

long double to_float(const Rational& value);

}  // namespace mgpu::rewards::math
