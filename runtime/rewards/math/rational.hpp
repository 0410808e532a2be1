#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <optional>
#include <string_view>

namespace mgpu::rewards::math {

using Integer = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;

// All results fit in this many bits above and below the line, or there is none.
inline constexpr unsigned kMostBits = 4096;

bool is_whole(const Rational& value);

// Sum, product and quotient; nothing when the result is too large, or for a division by zero.
std::optional<Rational> add(const Rational& a, const Rational& b);
std::optional<Rational> multiply(const Rational& a, const Rational& b);
std::optional<Rational> divide(const Rational& a, const Rational& b);

// `base` to a whole exponent; nothing for 0 to a negative one.
std::optional<Rational> power(const Rational& base, const Rational& exponent);
std::optional<Rational> factorial(const Rational& n);
std::optional<Rational> binomial(const Rational& n, const Rational& k);

Rational floor(const Rational& value);

// Rounded to `digits` after the point, ties to the even digit.
Rational rounded(const Rational& value, int digits);

// Digits with at most one point, such as 12, 0.5, .5: what the text says exactly.
std::optional<Rational> parse_decimal(std::string_view text);

long double to_float(const Rational& value);

}  // namespace mgpu::rewards::math
