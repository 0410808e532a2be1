#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/rewards/reward.hpp"

namespace mgpu::rewards {

// A reward defined in the recipe:
//   {regex: PATTERN, flags: ims, column: NAME, match: 1, otherwise: 0}
//     `match` if the pattern is found; with a column, only if the first group (or the whole match
//     if the pattern has no group) equals the text of that column
//   {json: $.path, equals: VALUE | column: NAME, match: 1, otherwise: 0, invalid: 0}
//     `match` if the completion, or the last ```json block or {...} in it, is JSON that has a value
//     at the path and, if given, the same value as `equals` or the column; `invalid` without JSON
// Throws std::runtime_error with the rule's name and the reason.
std::unique_ptr<Reward> make_rule(const std::string& name, const nlohmann::json& rule);

// The JSON that a text consists of or ends with; a discarded value if there is none.
nlohmann::json json_in(std::string_view text);

}  // namespace mgpu::rewards
