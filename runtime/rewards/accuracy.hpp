#pragma once

#include <string>
#include <string_view>

#include "runtime/rewards/reward.hpp"

namespace mgpu::rewards {

// 1 if the completion states the gold answer's result, 0 if not. No score if the gold answer states
// no result or the comparison cannot be decided.
Score accuracy(std::string_view completion, std::string_view gold);

// The same result for rewards that treat missing and undecided answers differently.
enum class AnswerVerdict { right, wrong, no_gold, undecided };
AnswerVerdict check_answer(std::string_view completion, std::string_view gold);

// The text of a row's `solution` column. Throws RewardInputError if the row has no such column.
std::string solution_of(const CompletionView& scored, const std::string& reward);

}  // namespace mgpu::rewards
