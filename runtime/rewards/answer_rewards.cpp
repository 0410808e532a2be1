// Rewards for correct answers and for the length of the completion.

#include <algorithm>
#include <map>

#include "runtime/rewards/accuracy.hpp"
#include "runtime/rewards/text_rewards.hpp"

namespace mgpu::rewards {
namespace {

// Short correct answers score highest, long wrong ones lowest. Lengths are compared within the
// group or within the whole call.
class Length : public Reward {
 public:
  Length(std::string name, LengthScope scope) : name_(std::move(name)), scope_(scope) {}
  const std::string& name() const override { return name_; }

  std::vector<Score> score(std::span<const CompletionView> completions) override {
    struct Bounds {
      double shortest = 0;
      double longest = 0;
    };
    std::map<std::size_t, Bounds> bounds;
    const auto scope_of = [&](const CompletionView& s) {
      return scope_ == LengthScope::group ? s.group : 0;
    };
    for (const auto& s : completions) {
      const auto length = static_cast<double>(characters(s.completion));
      const auto [at, first] = bounds.try_emplace(scope_of(s), Bounds{length, length});
      if (first) continue;
      at->second.shortest = std::min(at->second.shortest, length);
      at->second.longest = std::max(at->second.longest, length);
    }
    std::vector<Score> scores;
    for (const auto& s : completions) {
      const auto [shortest, longest] = bounds.at(scope_of(s));
      const auto verdict = check_answer(s.completion, solution_of(s, name_));
      if (verdict == AnswerVerdict::undecided) {
        scores.push_back(std::nullopt);
      } else if (shortest == longest) {
        scores.push_back(0);
      } else {
        const auto length = static_cast<double>(characters(s.completion));
        const double share = 0.5 - (length - shortest) / (longest - shortest);
        // If the gold answer states no result, no answer counts as wrong.
        scores.push_back(verdict == AnswerVerdict::wrong ? std::min(0.0, share) : share);
      }
    }
    return scores;
  }

 private:
  std::string name_;
  LengthScope scope_;
};

// open-r1's definition: length in characters. Beyond the maximum length the cosine rises again.
Score cosine(const CompletionView& s, const std::string& name, const Settings& set) {
  const auto verdict = check_answer(s.completion, solution_of(s, name));
  if (verdict == AnswerVerdict::no_gold) return 1;
  if (verdict == AnswerVerdict::undecided) return std::nullopt;
  const double progress = static_cast<double>(characters(s.completion)) / set.cosine_max_len;
  if (verdict == AnswerVerdict::right)
    return cosine_score(progress, set.cosine_max_value_correct, set.cosine_min_value_correct);
  return cosine_score(progress, set.cosine_min_value_wrong.value_or(0), set.cosine_max_value_wrong);
}

// TRL's definition: length in tokens, capped at the maximum length.
Score cosine_of_tokens(const CompletionView& s, const std::string& name, const Settings& set) {
  const auto verdict = check_answer(s.completion, solution_of(s, name));
  if (verdict == AnswerVerdict::no_gold || verdict == AnswerVerdict::undecided) return std::nullopt;
  const double progress =
      std::min(1.0, static_cast<double>(s.ids.size()) / static_cast<double>(set.cosine_max_len));
  if (verdict == AnswerVerdict::right)
    return cosine_score(progress, set.cosine_max_value_correct, set.cosine_min_value_correct);
  return cosine_score(progress, set.cosine_min_value_wrong.value_or(-1),
                      set.cosine_max_value_wrong);
}

// The accuracy of the text after the reasoning; 0 if the reasoning does not end.
Score accuracy_after_reasoning(const CompletionView& s, const std::string& name,
                               const std::vector<std::string>& delimiters) {
  const auto gold = solution_of(s, name);
  for (const auto& delimiter : delimiters) {
    const auto at = s.completion.rfind(delimiter);
    if (at != s.completion.npos) return accuracy(s.completion.substr(at + delimiter.size()), gold);
  }
  return 0;
}

}  // namespace

std::unique_ptr<Reward> make_answer_reward(const std::string& name, const Settings& settings) {
  if (name == "accuracy" || name == "accuracy_reward")
    return per_completion(name, [name](const CompletionView& s) {
      return accuracy(s.completion, solution_of(s, name));
    });
  if (name == "reasoning_accuracy" || name == "reasoning_accuracy_reward")
    return per_completion(
        name, [name, delimiters = settings.reasoning_delimiters](const CompletionView& s) {
          return accuracy_after_reasoning(s, name, delimiters);
        });
  if (name == "length") return std::make_unique<Length>(name, settings.length_scope);
  if (name == "cosine")
    return per_completion(
        name, [name, settings](const CompletionView& s) { return cosine(s, name, settings); });
  if (name == "get_cosine_scaled_reward" || name == "cosine_scaled_reward")
    return per_completion(name, [name, settings](const CompletionView& s) {
      return cosine_of_tokens(s, name, settings);
    });
  return nullptr;
}

}  // namespace mgpu::rewards
