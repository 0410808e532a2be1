#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/rewards/math/compare.hpp"

namespace mgpu::rewards::math {

// A result as it was stated and as it was understood.
struct Reading {
  std::string raw{};       // normalized; equal texts are equal results even when nobody understands
  Expr value{};            // null: not understood
  bool undecided = false;  // it is mathematics, of a kind whose value is not decided here
};

// Longer texts are looked at from their end.
inline constexpr std::size_t kMostText = 200'000;

// Nothing when no result is stated. In a gold, LaTeX that is not quite correct is repaired.
std::optional<Reading> read_gold(std::string_view text);
std::optional<Reading> read_answer(std::string_view text);

// Whether the answer states what the gold does. Unknown: it cannot be decided.
Verdict verify(const Reading& gold, const Reading& answer);

}  // namespace mgpu::rewards::math
