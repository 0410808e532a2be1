#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "runtime/rewards/settings.hpp"

namespace mgpu::rewards {

// Scores JSON Lines rows. A row has `completion` (text, or messages that end with the answer), its
// token ids in `completion_ids` if a reward counts tokens, the columns that rewards read, and
// `group`. Without `group`, consecutive rows with the same `prompt` are a group, and a row without
// a prompt is a group of its own. Writes one line {"accuracy":1.0,"format":null} per row. Throws
// with `source` and the line number.
void score_rows(std::istream& rows, const std::string& source,
                const std::vector<std::string>& names, const Settings& settings, std::ostream& out);

}  // namespace mgpu::rewards
