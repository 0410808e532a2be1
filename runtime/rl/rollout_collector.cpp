#include "runtime/rl/rollout_collector.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/seeds.hpp"
#include "runtime/profiling/range.hpp"

namespace mgpu::rl {
RolloutCollector::RolloutCollector(const train::ModelSource& source, Generator& generator,
                                   std::vector<std::unique_ptr<rewards::Reward>>& rewards)
    : source_(source), generator_(generator), rewards_(rewards) {}

std::vector<ScoredCompletion> RolloutCollector::collect(const GenerationRequest& request,
                                                        const std::vector<Prompt>& prompts) {
  std::vector<rollout::Request> requests;
  for (std::size_t q = 0; q < request.prompts.size(); ++q) {
    rollout::Request rollout_request{prompts[request.prompts[q]].tokens, {}};
    const auto number = static_cast<std::uint64_t>(request.numbers[q]);
    for (std::int64_t i = 0; i < request.group; ++i)
      rollout_request.seeds.push_back(rendezvous::derive_seed(
          rendezvous::derive_seed(request.seed, number), static_cast<std::uint64_t>(i)));
    requests.push_back(std::move(rollout_request));
  }
  auto generated = generator_.complete(requests);
  std::vector<ScoredCompletion> completions;
  for (std::size_t q = 0; q < requests.size(); ++q)
    for (auto& one : generated[q]) {
      ScoredCompletion completion;
      completion.prompt = request.prompts[q];
      completion.terminated = one.stop_reason != rollout::StopReason::length;
      completion.text = source_.tokenizer.decode(one.tokens, true);
      completion.tokens = std::move(one.tokens);
      completion.sampler_log_probs = std::move(one.log_probs);
      completions.push_back(std::move(completion));
    }
  score(completions, request.group, prompts);
  return completions;
}

void RolloutCollector::score(std::vector<ScoredCompletion>& completions, std::int64_t group,
                             const std::vector<Prompt>& prompts) {
  if (completions.empty()) return;
  const profiling::Range range("reward");
  std::vector<nlohmann::json> rows;
  for (std::size_t i = 0; i < completions.size(); i += static_cast<std::size_t>(group))
    rows.push_back(nlohmann::json::parse(prompts[completions[i].prompt].row));
  std::vector<rewards::CompletionView> views;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    const auto number = i / static_cast<std::size_t>(group);
    views.push_back({.completion = completions[i].text,
                     .row = &rows[number],
                     .ids = completions[i].tokens,
                     .truncated = !completions[i].terminated,
                     .group = number});
  }
  for (const auto& reward : rewards_) {
    const auto scores = reward->score(views);
    for (std::size_t i = 0; i < completions.size(); ++i)
      completions[i].rewards.push_back(scores[i]);
  }
}

}  // namespace mgpu::rl
