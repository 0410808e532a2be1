#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rewards::math {

// A piece of text that states a result: LaTeX, or a bare number or sum of numbers.
struct Statement {
  std::vector<std::string> parts{};  // more than one for "$1$ and $2$"
  bool percent = false;              // followed by %
  bool bare = false;
};

// Finds the result of a completion: the last \boxed{} (and boxes close to it), else LaTeX after the
// words "final answer is" or "answer". Other text is ignored.
std::optional<Statement> find_answer(std::string_view text);

// Finds the result of a gold answer: as above, else the last LaTeX, else the last number.
std::optional<Statement> find_gold(std::string_view text);

}  // namespace mgpu::rewards::math
