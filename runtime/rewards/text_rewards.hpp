#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"

// Rewards that depend only on the text or length of a completion.
namespace mgpu::rewards {

// 1 if the completion starts with "<think>\n...\n</think>\n<answer>\n...\n</answer>" and the last
// tag ends a line, else 0.
double format_score(std::string_view completion);

// 0.25 for each of the four tags of that format that occurs exactly once.
double tag_count_score(std::string_view completion);

// 1 if the completion starts with <think>, has no other <think>, and closes it; else 0.
double think_format_score(std::string_view completion);

// Penalty for repeated words: `penalty` times the fraction of n-grams that occurred before. Words
// are lower-cased and split at white space.
double repetition_score(std::string_view completion, int n, double penalty);
double repetition_score(std::span<const int> ids, int n, double penalty);

// 0 up to `longest` - `cache` tokens, falling linearly to -1 at `longest`, -1 beyond.
double overlong_score(std::size_t tokens, int longest, int cache);

// Follows a cosine from `at_zero` at length 0 to `at_full` at the full length.
double cosine_score(double progress, double at_zero, double at_full);

std::size_t characters(std::string_view utf8);

// Each creates a reward by its name in reward_funcs; null for a name that is not one of its own.
std::unique_ptr<Reward> make_text_reward(const std::string& name, const Settings& settings);
std::unique_ptr<Reward> make_answer_reward(const std::string& name, const Settings& settings);
std::unique_ptr<Reward> make_recommendation_reward(const std::string& name,
                                                   const Settings& settings);

// A reward that scores each completion by itself.
template <class Function>
class PerCompletionReward : public Reward {
 public:
  PerCompletionReward(std::string name, Function per_completion)
      : name_(std::move(name)), function_(std::move(per_completion)) {}
  const std::string& name() const override { return name_; }
  std::vector<Score> score(std::span<const CompletionView> completions) override {
    std::vector<Score> scores;
    scores.reserve(completions.size());
    for (const auto& one : completions) scores.push_back(function_(one));
    return scores;
  }

 private:
  std::string name_;
  Function function_;
};

template <class Function>
std::unique_ptr<Reward> per_completion(const std::string& name, Function f) {
  return std::make_unique<PerCompletionReward<Function>>(name, std::move(f));
}

}  // namespace mgpu::rewards
