#include "runtime/rl/server_generator.hpp"

#include <algorithm>
#include <utility>

#include "runtime/profiling/range.hpp"

namespace mgpu::rl {
namespace {

rollout::Completion completion_of(servers::ServerCompletion generated,
                                  const servers::SamplingParams& sampling) {
  using enum rollout::StopReason;
  rollout::Completion completion{std::move(generated.tokens), std::move(generated.log_probs),
                                 length};
  if (!generated.ended) return completion;
  const auto& stops = sampling.stop_tokens;
  const bool by_stop = !completion.tokens.empty() &&
                       std::ranges::find(stops, completion.tokens.back()) != stops.end();
  completion.stop_reason = by_stop ? stop_token : stop_text;
  return completion;
}

}  // namespace

ServerGenerator::ServerGenerator(const servers::ServerClient& server,
                                 servers::SamplingParams sampling, servers::milliseconds limit,
                                 std::unique_ptr<WeightSync> sync)
    : server_(server), sampling_(std::move(sampling)), limit_(limit), sync_(std::move(sync)) {}

void ServerGenerator::sync_weights(std::int64_t step) {
  if (step_ == step) return;
  model_ = sync_->send(step);
  step_ = step;
}

std::optional<Generator::Completions> ServerGenerator::complete(
    const std::vector<rollout::Request>& requests, const rollout::RequestFinished& finished,
    const std::function<bool()>& cancelled, const Decoding& decoding) {
  if (decoding.beams) throw std::logic_error("a server does not generate beams");
  const profiling::Range range("rollout");
  std::vector<servers::CompletionRequest> server_requests;
  for (const auto& request : requests)
    server_requests.push_back({.prompt = request.tokens,
                               .count = static_cast<std::int64_t>(request.seeds.size()),
                               .seed = request.seeds.front()});
  Completions completions(requests.size());
  const auto take = [&](std::size_t i, std::vector<servers::ServerCompletion> generated) {
    for (auto& one : generated) completions[i].push_back(completion_of(std::move(one), sampling_));
    finished(i, completions[i]);
  };
  if (!servers::complete(server_, model_, server_requests, sampling_, limit_, take, cancelled))
    return std::nullopt;
  return completions;
}

}  // namespace mgpu::rl
