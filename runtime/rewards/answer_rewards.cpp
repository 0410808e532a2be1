// Rewards of an answer and of how long it took to give it.

#include <algorithm>
#include <map>

#include "runtime/rewards/accuracy.hpp"
#include "runtime/rewards/text_rewards.hpp"

namespace mgpu::rewards {
namespace {

// Short right answers are worth most, long wrong ones least; compared with the other completions of
// the group, or of the whole call.
class Length : public Reward {
 public:
  Length(std::string name, LengthScope scope) : name_(std::move(name)), scope_(scope) {}
  const std::string& name() const override { return name_; }

  std::vector<Score> score(std::span<const Scored> completions) override {
    struct Bounds {
      double least = 0;
      double most = 0;
    };
    std::map<std::size_t, Bounds> bounds;
    const auto scope_of = [&](const Scored& s) {
      return scope_ == LengthScope::group ? s.group : 0;
    };
    for (const auto& s : completions) {
      const auto length = static_cast<double>(characters(s.completion));
      const auto [at, first] = bounds.try_emplace(scope_of(s), Bounds{length, length});
      if (first) continue;
      at->second.least = std::min(at->second.least, length);
      at->second.most = std::max(at->second.most, length);
    }
    std::vector<Score> scores;
    for (const auto& s : completions) {
      const auto [least, most] = bounds.at(scope_of(s));
      const auto verdict = answered(s.completion, solution_of(s, name_));
      if (verdict == Answered::undecided) {
        scores.push_back(std::nullopt);
      } else if (least == most) {
        scores.push_back(0);
      } else {
        const auto length = static_cast<double>(characters(s.completion));
        const double share = 0.5 - (length - least) / (most - least);
        // A gold that states nothing cannot be missed.
        scores.push_back(verdict == Answered::wrong ? std::min(0.0, share) : share);
      }
    }
    return scores;
  }

 private:
  std::string name_;
  LengthScope scope_;
};

// open-r1's: in characters, beyond the longest length on the other side of the wave.
Score cosine(const Scored& s, const std::string& name, const Settings& set) {
  const auto verdict = answered(s.completion, solution_of(s, name));
  if (verdict == Answered::no_gold) return 1;
  if (verdict == Answered::undecided) return std::nullopt;
  const double progress = static_cast<double>(characters(s.completion)) / set.cosine_max_len;
  if (verdict == Answered::right)
    return cosine_score(progress, set.cosine_max_value_correct, set.cosine_min_value_correct);
  return cosine_score(progress, set.cosine_min_value_wrong.value_or(0), set.cosine_max_value_wrong);
}

// TRL's: in tokens, and not beyond the longest length.
Score cosine_of_tokens(const Scored& s, const std::string& name, const Settings& set) {
  const auto verdict = answered(s.completion, solution_of(s, name));
  if (verdict == Answered::no_gold || verdict == Answered::undecided) return std::nullopt;
  const double progress =
      std::min(1.0, static_cast<double>(s.ids.size()) / static_cast<double>(set.cosine_max_len));
  if (verdict == Answered::right)
    return cosine_score(progress, set.cosine_max_value_correct, set.cosine_min_value_correct);
  return cosine_score(progress, set.cosine_min_value_wrong.value_or(-1),
                      set.cosine_max_value_wrong);
}

// The accuracy of what stands behind the reasoning; 0 for reasoning that never ends.
Score behind_reasoning(const Scored& s, const std::string& name,
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
    return each(name,
                [name](const Scored& s) { return accuracy(s.completion, solution_of(s, name)); });
  if (name == "reasoning_accuracy" || name == "reasoning_accuracy_reward")
    return each(name, [name, ends = settings.reasoning_delimiters](const Scored& s) {
      return behind_reasoning(s, name, ends);
    });
  if (name == "length") return std::make_unique<Length>(name, settings.length_scope);
  if (name == "cosine")
    return each(name, [name, settings](const Scored& s) { return cosine(s, name, settings); });
  if (name == "get_cosine_scaled_reward" || name == "cosine_scaled_reward")
    return each(name,
                [name, settings](const Scored& s) { return cosine_of_tokens(s, name, settings); });
  return nullptr;
}

}  // namespace mgpu::rewards
