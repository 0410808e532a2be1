#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/rewards/reward.hpp"

namespace mgpu::rewards {

// A reward from a few words of a recipe:
//   {regex: PATTERN, flags: ims, column: NAME, match: 1, otherwise: 0}
//     `match` where the pattern is found; with a column, where the first group (the whole match
//     if there is none) is the text of that column
//   {json: $.path, equals: VALUE | column: NAME, match: 1, otherwise: 0, invalid: 0}
//     the completion, or the last ```json block or {...} in it, is JSON and has that place, with
//     that value; `invalid` where there is no JSON
// Throws std::runtime_error naming the rule and what is wrong with it.
std::unique_ptr<Reward> make_rule(const std::string& name, const nlohmann::json& rule);

// The JSON that a text consists of or ends with; discarded when there is none.
nlohmann::json json_in(std::string_view text);

}  // namespace mgpu::rewards
