#pragma once

// Catch2 is v2 on Debian 12 and v3 on Ubuntu 24.04; Contains works with both.
#if __has_include(<catch2/catch_all.hpp>)
#include <concepts>
#include <string>

#include <catch2/catch_all.hpp>
namespace Catch::Matchers {
// A template with a constraint: v3's own Contains, which looks for an element, accepts any type and
// would be preferred to a plain function.
template <std::convertible_to<std::string> Text>
StringContainsMatcher Contains(Text&& text) {
  return ContainsSubstring(text);
}
}  // namespace Catch::Matchers
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
