#include "runtime/rl/log_probs.hpp"

#include <algorithm>

#include "runtime/grpo/token_budget.hpp"
#include "runtime/rl/policy_loss.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {
namespace {

// How many of the completions from `begin` on are in one forward pass.
std::size_t count_at_once(std::span<const ScoredCompletion> completions, std::size_t begin,
                          const std::vector<Prompt>& prompts, const LogProbsRequest& request) {
  const auto left = completions.size() - begin;
  if (request.most_tokens == 0) return std::min(static_cast<std::size_t>(request.at_once), left);
  grpo::LaidOutTokens tokens;
  std::size_t count = 0;
  for (; count < left; ++count) {
    const auto& completion = completions[begin + count];
    const grpo::CompletionCost cost{
        .prompt = completion.prompt,
        .prompt_tokens = static_cast<std::int64_t>(prompts[completion.prompt].tokens.size()),
        .tokens = static_cast<std::int64_t>(completion.tokens.size())};
    if (count > 0 && tokens.count_with(cost) > request.most_tokens) break;
    tokens.add(cost);
  }
  return count;
}

}  // namespace

void divide_log_probs(std::span<const float> values, std::span<ScoredCompletion> completions,
                      LogProbsList list) {
  for (auto& completion : completions) {
    const auto own = values.first(completion.tokens.size());
    (completion.*list).assign(own.begin(), own.end());
    values = values.subspan(own.size());
  }
}

void set_log_probs(std::vector<ScoredCompletion>& completions, const std::vector<Prompt>& prompts,
                   const LogProbsRequest& request) {
  for (std::size_t begin = 0; begin < completions.size();) {
    const auto some =
        std::span(completions).subspan(begin, count_at_once(completions, begin, prompts, request));
    begin += some.size();
    std::vector<BatchEntry> entries;
    for (const auto& completion : some) entries.push_back({&completion, true});
    const auto batch = train::to_device(batch_of(entries, prompts), request.device);
    const auto host = request.score(batch).cpu();
    divide_log_probs({host.const_data_ptr<float>(), static_cast<std::size_t>(host.numel())}, some,
                     request.list);
  }
}

}  // namespace mgpu::rl
