#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"

// Rewards that look at the text of a completion alone, and those of its length.
namespace mgpu::rewards {

// 1 for "<think>\n...\n</think>\n<answer>\n...\n</answer>" up to the end of a line, else 0.
double format_score(std::string_view completion);

// A quarter for each of the four tags of that form that stands there once.
double tag_count_score(std::string_view completion);

// 1 for one <think> at the beginning that is closed, else 0.
double think_format_score(std::string_view completion);

// By how much words are repeated: `penalty` times the share of n-grams that are not the first of
// their kind. Words are lower case, split at white space.
double repetition_score(std::string_view completion, int n, double penalty);
double repetition_score(std::span<const int> ids, int n, double penalty);

// 0 up to `longest` - `cache` tokens, falling to -1 at `longest`, -1 behind.
double overlong_score(std::size_t tokens, int longest, int cache);

// On a cosine from `at_none` for nothing to `at_full` for all of the length.
double cosine_score(double progress, double at_none, double at_full);

std::size_t characters(std::string_view utf8);

// Each by its name in reward_funcs; null when the name is none of these.
std::unique_ptr<Reward> make_text_reward(const std::string& name, const Settings& settings);
std::unique_ptr<Reward> make_answer_reward(const std::string& name, const Settings& settings);
std::unique_ptr<Reward> make_recommendation_reward(const std::string& name);

// A reward of one completion at a time.
template <class Each>
class EachReward : public Reward {
 public:
  EachReward(std::string name, Each each) : name_(std::move(name)), each_(std::move(each)) {}
  const std::string& name() const override { return name_; }
  std::vector<Score> score(std::span<const Scored> completions) override {
    std::vector<Score> scores;
    scores.reserve(completions.size());
    for (const auto& one : completions) scores.push_back(each_(one));
    return scores;
  }

 private:
  std::string name_;
  Each each_;
};

template <class Each>
std::unique_ptr<Reward> each(const std::string& name, Each f) {
  return std::make_unique<EachReward<Each>>(name, std::move(f));
}

}  // namespace mgpu::rewards
