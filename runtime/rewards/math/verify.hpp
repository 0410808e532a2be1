#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/rewards/math/compare.hpp"

namespace mgpu::rewards::math {

// A result: its text and its parsed value.
struct Reading {
  std::string raw{};       // normalized; equal texts are equal results even if not parsed
  Expr value{};            // null: not parsed
  bool undecided = false;  // mathematics whose value is not computed
};

// Of longer texts only this many bytes at the end are used.
inline constexpr std::size_t kMostText = 200'000;

// Nothing if no result is stated. Slightly incorrect LaTeX is repaired in a gold answer only.
std::optional<Reading> read_gold(std::string_view text);
std::optional<Reading> read_answer(std::string_view text);

// Whether the answer equals the gold answer. Unknown if that cannot be decided.
Verdict verify(const Reading& gold, const Reading& answer);

}  // namespace mgpu::rewards::math
