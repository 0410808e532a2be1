#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Finds mathematics in a text.
namespace mgpu::rewards::math {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;  // after it, including a percent sign
  std::vector<std::string> parts{};
  bool percent = false;
};

// $..$, $$..$$, \(..\), \[..\], a lone \frac{1}{2}: left to right. Spans joined by commas,
// "and" or "or" become one span with several parts.
std::vector<Span> latex_spans(std::string_view text);

// The contents of the last \boxed{} and those close before it, separated by commas. `latex` are the
// latex_spans of the text.
std::optional<Span> boxed_span(std::string_view text, const std::vector<Span>& latex);

// Numbers such as 1,234.5, $12, 3% and sums such as 3/4 or 2*(1+2), after a blank or =.
std::vector<Span> number_spans(std::string_view text);

// The positions of `words`, ignoring case.
std::vector<std::size_t> find_words(std::string_view text, std::string_view words);

// The position after blanks and a percent sign or word at `at`; `at` itself if there is none.
std::size_t behind_percent(std::string_view text, std::size_t at, bool& found);

}  // namespace mgpu::rewards::math
