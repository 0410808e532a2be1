// Rewards of recommender recipes: whether the completion names the target item, and at which
// position in the group.

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"
#include "runtime/rewards/embeddings.hpp"
#include "runtime/rewards/item_list.hpp"
#include "runtime/rewards/text_rewards.hpp"

namespace mgpu::rewards {
namespace {

std::string_view target_of(const CompletionView& s, const std::string& reward) {
  if (const auto target = target_in(*s.row); !target.empty()) return target;
  throw RewardInputError(
      reward,
      "the dataset has no text column solution, target, answer, label or completion "
      "that names an item");
}

bool hits(const CompletionView& s, const std::string& reward) {
  return bare_name(s.completion) == target_of(s, reward);
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

// How similar the completion's item is to the one to find: the cosine of their embeddings. A
// completion that names no item scores 0.
class Semantic : public Reward {
 public:
  explicit Semantic(const Settings& settings)
      : items_(ItemList::read(required(settings.info_file, "info_file"))),
        embeddings_(Embeddings::read(required(settings.ada_path, "ada_path"))) {
    if (embeddings_.rows() != items_.all().size())
      throw rendezvous::InputError(fmt::format(
          "{} has {} rows for the {} items of {}; it needs one for each, in their order",
          settings.ada_path, embeddings_.rows(), items_.all().size(), items_.path()));
  }

  const std::string& name() const override { return name_; }

  std::vector<Score> score(std::span<const CompletionView> completions) override {
    std::vector<Score> scores;
    for (const auto& one : completions) {
      const auto text = target_of(one, name_);
      const auto target = items_.find(text), named = items_.find(one.completion);
      if (!target)
        throw RewardInputError(name_, fmt::format("the item {} of a row is not in {}",
                                                  rendezvous::shown(text), items_.path()));
      scores.push_back(named ? embeddings_.cosine(*target, *named) : 0);
    }
    return scores;
  }

 private:
  static std::string required(const std::string& path, const char* key) {
    if (path.empty()) throw rendezvous::InputError(fmt::format("reward semantic requires {}", key));
    return path;
  }

  std::string name_ = "semantic";
  ItemList items_;
  Embeddings embeddings_;
};

}  // namespace

std::unique_ptr<Reward> make_recommendation_reward(const std::string& name,
                                                   const Settings& settings) {
  if (name == "semantic") return std::make_unique<Semantic>(settings);
  if (name == "rule")
    return per_completion(
        name, [name](const CompletionView& s) -> Score { return hits(s, name) ? 1 : 0; });
  if (name == "ndcg_rule") return std::make_unique<Ranking>(name, false);
  if (name == "ranking") return std::make_unique<Ranking>(name, true);
  return nullptr;
}

}  // namespace mgpu::rewards
