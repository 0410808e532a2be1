#pragma once

#include <string>
#include <string_view>

namespace mgpu::rewards::math {

// Normalizes LaTeX: removes sizes, spaces, fonts, dollar signs and units at the end; the words and,
// or, percent and infinity get one spelling.
std::string normalized(std::string_view latex);

// The text without a unit at its end: `5\text{ cm}^2` and `5 miles` are 5. A text that is
// only a unit is unchanged.
std::string without_units(std::string text);

}  // namespace mgpu::rewards::math
