// Rewards of recommender recipes: whether the completion names the target item, and at which
// position in the group.

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/rewards/text_rewards.hpp"

namespace mgpu::rewards {
namespace {

std::string_view without_blanks_and_quotes(std::string_view text) {
  constexpr std::string_view kAround = " \t\r\n\"";
  const auto begin = text.find_first_not_of(kAround);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kAround) - begin + 1);
}

bool hits(const CompletionView& s, const std::string& reward) {
  for (const auto* column : {"solution", "target", "answer", "label", "completion"}) {
    const auto found = s.row->find(column);
    if (found == s.row->end() || !found->is_string()) continue;
    return without_blanks_and_quotes(s.completion) ==
           without_blanks_and_quotes(found->get_ref<const std::string&>());
  }
  throw RewardError(reward,
                    "the dataset has no text column solution, target, answer, label or completion");
}

class Ranking : public Reward {
 public:
  Ranking(std::string name, bool with_hits) : name_(std::move(name)), with_hits_(with_hits) {}
  const std::string& name() const override { return name_; }

  std::vector<Score> score(std::span<const CompletionView> completions) override {
    struct Group {
      std::size_t members = 0;
      std::size_t hits = 0;
      double weight = 0;  // sum over all positions
    };
    std::map<std::size_t, Group> groups;
    std::vector<bool> hit;
    for (const auto& s : completions) {
      auto& group = groups[s.group];
      hit.push_back(hits(s, name_));
      if (hit.back()) ++group.hits;
      group.weight += position_weight(group.members++);
    }
    std::map<std::size_t, std::size_t> position;
    std::vector<Score> scores;
    for (std::size_t i = 0; i < completions.size(); ++i) {
      const auto& group = groups.at(completions[i].group);
      const auto at = position[completions[i].group]++;
      double value = hit[i] || group.hits == 0 ? 0 : -position_weight(at) / group.weight;
      if (with_hits_ && hit[i]) value += 1;
      scores.push_back(value);
    }
    return scores;
  }

 private:
  static double position_weight(std::size_t at) {
    return 1 / std::log2(static_cast<double>(at) + 2);
  }

  std::string name_;
  bool with_hits_;
};

}  // namespace

std::unique_ptr<Reward> make_recommendation_reward(const std::string& name) {
  if (name == "rule")
    return per_completion(
        name, [name](const CompletionView& s) -> Score { return hits(s, name) ? 1 : 0; });
  if (name == "ndcg_rule") return std::make_unique<Ranking>(name, false);
  if (name == "ranking") return std::make_unique<Ranking>(name, true);
  return nullptr;
}

}  // namespace mgpu::rewards
