#pragma once

#include <string>
#include <string_view>

#include "runtime/rewards/reward.hpp"

namespace mgpu::rewards {

// 1 when the completion states the gold's result, 0 when it does not, nothing when the gold states
// none or it cannot be decided.
Score accuracy(std::string_view completion, std::string_view gold);

// How rewards on top of it count what has no verdict.
enum class Answered { right, wrong, no_gold, undecided };
Answered answered(std::string_view completion, std::string_view gold);

// The text of a row's column `solution`. Throws RewardError where it has none.
std::string solution_of(const Scored& scored, const std::string& reward);

}  // namespace mgpu::rewards
