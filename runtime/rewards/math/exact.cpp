#include "runtime/rewards/math/exact.hpp"

#include <algorithm>

namespace mgpu::rewards::math {
namespace {

namespace mp = boost::multiprecision;

using Values = std::vector<Rational>;

std::optional<Rational> of_whole_numbers(const std::string& name, const Values& values) {
  if (!std::all_of(values.begin(), values.end(), is_whole)) return std::nullopt;
  Integer result = mp::abs(mp::numerator(values[0]));
  for (std::size_t i = 1; i < values.size(); ++i) {
    const Integer other = mp::abs(mp::numerator(values[i]));
    result = name == "gcd" ? Integer(mp::gcd(result, other)) : Integer(mp::lcm(result, other));
  }
  return add(Rational(result), 0);
}

std::optional<Rational> exact_value_of_call(const std::string& name, const Values& values) {
  if (values.empty()) return std::nullopt;
  if (values.size() == 1) {
    if (name == "factorial") return factorial(values[0]);
    if (name == "abs") return values[0] < 0 ? Rational(-values[0]) : values[0];
    if (name == "floor") return floor(values[0]);
    if (name == "ceil") return Rational(-floor(-values[0]));
  }
  if (name == "gcd" || name == "lcm") return of_whole_numbers(name, values);
  if (name == "max") return *std::max_element(values.begin(), values.end());
  if (name == "min") return *std::min_element(values.begin(), values.end());
  if (values.size() != 2) return std::nullopt;
  if (name == "binomial") return binomial(values[0], values[1]);
  if (name == "mod") {
    const auto times = divide(values[0], values[1]);
    if (!times) return std::nullopt;
    return add(values[0], -values[1] * floor(*times));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rational> exact_value(const Expr& e) {
  if (e->kind == Kind::number) return e->value;
  if (e->kind != Kind::sum && e->kind != Kind::product && e->kind != Kind::power &&
      e->kind != Kind::percent && e->kind != Kind::call)
    return std::nullopt;
  Values values;
  for (const auto& arg : e->args) {
    auto value = exact_value(arg);
    if (!value) return std::nullopt;
    values.push_back(std::move(*value));
  }
  if (e->kind == Kind::call) return exact_value_of_call(e->name, values);
  if (e->kind == Kind::percent) return divide(values[0], 100);
  if (e->kind == Kind::power) return power(values[0], values[1]);
  std::optional<Rational> result(e->kind == Kind::sum ? 0 : 1);
  for (const auto& value : values) {
    result = e->kind == Kind::sum ? add(*result, value) : multiply(*result, value);
    if (!result) return std::nullopt;
  }
  return result;
}

bool has_decimal(const Expr& e) {
  return (e->kind == Kind::number && e->decimal) ||
         std::any_of(e->args.begin(), e->args.end(), has_decimal);
}

}  // namespace mgpu::rewards::math
