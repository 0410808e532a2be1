#pragma once

#include <string>
#include <string_view>

namespace mgpu::rewards::math {

// LaTeX without what does not change its meaning: sizes and spaces, fonts, dollar signs, the words
// and, or, percent, infinity in one spelling, units at the end.
std::string normalized(std::string_view latex);

// The text without a unit at its end: `5\text{ cm}^2` and `5 miles` are 5. What consists of nothing
// else stays.
std::string without_units(std::string text);

}  // namespace mgpu::rewards::math
