#pragma once

// Catch2 is v2 on Debian 12 and v3 on Ubuntu 24.04; tests say Contains and mean both.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
namespace Catch::Matchers {
inline StringContainsMatcher Contains(std::string const& text) {
  return ContainsSubstring(text);
}
}  // namespace Catch::Matchers
#else
#include <catch2/catch.hpp>
#endif
