#include "runtime/rl/actor.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/rollout/seeds.hpp"

namespace mgpu::rl {
Actor::Actor(const train::ModelSource& source, Generator& generator,
             std::vector<std::unique_ptr<rewards::Reward>>& rewards)
    : source_(source), generator_(generator), rewards_(rewards) {}

std::vector<Sample> Actor::complete(const Round& round, const std::vector<Question>& questions) {
  std::vector<rollout::Prompt> prompts;
  for (std::size_t q = 0; q < round.questions.size(); ++q) {
    rollout::Prompt prompt{questions[round.questions[q]].tokens, {}};
    const auto number = static_cast<std::uint64_t>(round.numbers[q]);
    for (std::int64_t i = 0; i < round.group; ++i)
      prompt.seeds.push_back(
          rollout::seed_of(rollout::seed_of(round.seed, number), static_cast<std::uint64_t>(i)));
    prompts.push_back(std::move(prompt));
  }
  auto made = generator_.complete(prompts);
  std::vector<Sample> samples;
  for (std::size_t q = 0; q < prompts.size(); ++q)
    for (auto& one : made[q]) {
      Sample sample;
      sample.question = round.questions[q];
      sample.terminated = one.ended != rollout::Ended::at_length;
      sample.text = source_.tokenizer.decode(one.tokens, true);
      sample.tokens = std::move(one.tokens);
      sample.sampler_log_probs = std::move(one.log_probs);
      samples.push_back(std::move(sample));
    }
  judge(samples, round.group, questions);
  return samples;
}

void Actor::judge(std::vector<Sample>& samples, std::int64_t group,
                  const std::vector<Question>& questions) {
  if (samples.empty()) return;
  std::vector<nlohmann::json> rows;
  for (std::size_t i = 0; i < samples.size(); i += static_cast<std::size_t>(group))
    rows.push_back(nlohmann::json::parse(questions[samples[i].question].row));
  std::vector<rewards::Scored> scored;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto number = i / static_cast<std::size_t>(group);
    scored.push_back({.completion = samples[i].text,
                      .row = &rows[number],
                      .ids = samples[i].tokens,
                      .truncated = !samples[i].terminated,
                      .group = number});
  }
  for (const auto& reward : rewards_) {
    const auto scores = reward->score(scored);
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i].rewards.push_back(scores[i]);
  }
}

}  // namespace mgpu::rl
