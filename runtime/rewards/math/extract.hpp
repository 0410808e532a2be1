#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rewards::math {

// A piece of text that states a result: LaTeX, or a bare number or sum of numbers.
struct Statement {
  std::vector<std::string> parts{};  // more than one for "$1$ and $2$"
  bool percent = false;              // a % stands behind it
  bool bare = false;
};

// Where a model states its result: in the last \boxed{} (and its close neighbours), else in LaTeX
// behind the words "final answer is" or "answer". What stands elsewhere is not taken.
std::optional<Statement> find_answer(std::string_view text);

// Where a data set states it: as above, else in the last LaTeX, else the last number.
std::optional<Statement> find_gold(std::string_view text);

}  // namespace mgpu::rewards::math
