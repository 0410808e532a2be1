#include "runtime/rl/server_generator.hpp"

#include <algorithm>
#include <utility>

namespace mgpu::rl {
namespace {

rollout::Completion completion_of(servers::Made made, const servers::Drawing& drawing) {
  using enum rollout::Ended;
  rollout::Completion completion{std::move(made.tokens), std::move(made.log_probs), at_length};
  if (!made.ended) return completion;
  const auto& stops = drawing.stop_tokens;
  const bool by_stop = !completion.tokens.empty() &&
                       std::ranges::find(stops, completion.tokens.back()) != stops.end();
  completion.ended = by_stop ? by_token : by_text;
  return completion;
}

}  // namespace

ServerGenerator::ServerGenerator(const servers::Caller& server, servers::Drawing drawing,
                                 servers::milliseconds limit, std::unique_ptr<WeightSync> sync)
    : server_(server), drawing_(std::move(drawing)), limit_(limit), sync_(std::move(sync)) {}

void ServerGenerator::renew(std::int64_t step) {
  if (step_ == step) return;
  model_ = sync_->send(step);
  step_ = step;
}

std::vector<std::vector<rollout::Completion>> ServerGenerator::complete(
    const std::vector<rollout::Prompt>& prompts) {
  std::vector<servers::Asked> asked;
  for (const auto& prompt : prompts)
    asked.push_back({.prompt = prompt.tokens,
                     .count = static_cast<std::int64_t>(prompt.seeds.size()),
                     .seed = prompt.seeds.front()});
  auto made = servers::complete(server_, model_, asked, drawing_, limit_);
  std::vector<std::vector<rollout::Completion>> completions(made.size());
  for (std::size_t i = 0; i < made.size(); ++i)
    for (auto& one : made[i]) completions[i].push_back(completion_of(std::move(one), drawing_));
  return completions;
}

}  // namespace mgpu::rl
