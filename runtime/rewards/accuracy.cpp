#include "runtime/rewards/accuracy.hpp"

#include <nlohmann/json.hpp>

#include "runtime/rewards/math/verify.hpp"

namespace mgpu::rewards {

AnswerVerdict check_answer(std::string_view completion, std::string_view gold) {
  const auto expected = math::read_gold(gold);
  if (!expected) return AnswerVerdict::no_gold;
  const auto given = math::read_answer(completion);
  if (!given) return AnswerVerdict::wrong;
  switch (math::verify(*expected, *given)) {
    case math::Verdict::yes:
      return AnswerVerdict::right;
    case math::Verdict::no:
      return AnswerVerdict::wrong;
    case math::Verdict::unknown:
      break;
  }
  return AnswerVerdict::undecided;
}

Score accuracy(std::string_view completion, std::string_view gold) {
  const auto verdict = check_answer(completion, gold);
  if (verdict == AnswerVerdict::right) return 1;
  if (verdict == AnswerVerdict::wrong) return 0;
  return std::nullopt;
}

std::string solution_of(const CompletionView& scored, const std::string& reward) {
  const auto found = scored.row->find("solution");
  if (found == scored.row->end())
    throw RewardInputError(
        reward,
        "the dataset has no column solution; rename the column with the answers, or "
        "use a reward that needs no solution");
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number() || found->is_boolean()) return found->dump();
  if (found->is_null()) return "";
  throw RewardInputError(reward, "the column solution is neither text nor a number");
}

}  // namespace mgpu::rewards
