#include "runtime/rewards/accuracy.hpp"

#include <nlohmann/json.hpp>

#include "runtime/rewards/math/verify.hpp"

namespace mgpu::rewards {

Answered answered(std::string_view completion, std::string_view gold) {
  const auto expected = math::read_gold(gold);
  if (!expected) return Answered::no_gold;
  const auto given = math::read_answer(completion);
  if (!given) return Answered::wrong;
  switch (math::verify(*expected, *given)) {
    case math::Verdict::yes:
      return Answered::right;
    case math::Verdict::no:
      return Answered::wrong;
    case math::Verdict::unknown:
      break;
  }
  return Answered::undecided;
}

Score accuracy(std::string_view completion, std::string_view gold) {
  const auto verdict = answered(completion, gold);
  if (verdict == Answered::right) return 1;
  if (verdict == Answered::wrong) return 0;
  return std::nullopt;
}

std::string solution_of(const Scored& scored, const std::string& reward) {
  const auto found = scored.row->find("solution");
  if (found == scored.row->end())
    throw RewardError(reward,
                      "the data set has no column solution; rename the column of the answers, or "
                      "use a reward that needs none");
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number() || found->is_boolean()) return found->dump();
  if (found->is_null()) return "";
  throw RewardError(reward, "the column solution is neither text nor a number");
}

}  // namespace mgpu::rewards
