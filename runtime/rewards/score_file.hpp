#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "runtime/rewards/settings.hpp"

namespace mgpu::rewards {

// Scores rows of JSON, one a line: `completion` (text, or messages whose last is the answer), its
// tokens in `completion_ids` if rewards count tokens, the columns that rewards read, and `group`;
// without one, rows in a row with the same `prompt` are a group, and a row without prompt is one.
// Writes a line {"accuracy":1.0,"format":null} a row. Throws naming `source` and the line.
void score_rows(std::istream& rows, const std::string& source,
                const std::vector<std::string>& names, const Settings& settings, std::ostream& out);

}  // namespace mgpu::rewards
