#include "runtime/rl/actor.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/rollout/seeds.hpp"

namespace mgpu::rl {
Actor::Actor(const train::ModelSource& source, Options options, model::Keeper& keeper,
             std::vector<std::unique_ptr<rewards::Reward>>& rewards)
    : source_(source), options_(std::move(options)), keeper_(keeper), rewards_(rewards) {}

std::vector<Sample> Actor::complete(const Round& round, const std::vector<Question>& questions) {
  std::vector<rollout::Prompt> prompts;
  std::size_t longest = 1;
  for (std::size_t q = 0; q < round.questions.size(); ++q) {
    rollout::Prompt prompt{questions[round.questions[q]].tokens, {}};
    longest = std::max(longest, prompt.tokens.size());
    const auto number = static_cast<std::uint64_t>(round.first) + q;
    for (std::int64_t i = 0; i < round.group; ++i)
      prompt.seeds.push_back(
          rollout::seed_of(rollout::seed_of(round.seed, number), static_cast<std::uint64_t>(i)));
    prompts.push_back(std::move(prompt));
  }
  const auto completions = static_cast<std::int64_t>(prompts.size()) * round.group;
  // The cache is there while something is generated only: updates need the memory.
  rollout::Engine engine(
      source_.config,
      {.model = options_.model,
       .sequences = std::clamp<std::int64_t>(completions, 1, options_.sequences),
       .longest = static_cast<std::int64_t>(longest) + options_.wanted.most_tokens,
       .burst = options_.model.device.is_cuda() ? 8 : 1},
      keeper_);
  auto made = engine.generate(prompts, options_.wanted);
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
