#include "runtime/rl/engine_generator.hpp"

#include <algorithm>
#include <utility>

#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/profiling/range.hpp"

namespace mgpu::rl {

EngineGenerator::EngineGenerator(const model::ModelConfig& config, Options options,
                                 model::WeightProvider& provider)
    : config_(config), options_(std::move(options)), provider_(provider) {}

std::optional<Generator::Completions> EngineGenerator::complete(
    const std::vector<rollout::Request>& requests, const rollout::RequestFinished& finished,
    const std::function<bool()>& cancelled) {
  const profiling::Range range("rollout");
  std::size_t longest = 1, completions = 0;
  for (const auto& request : requests) {
    longest = std::max(longest, request.tokens.size());
    completions += request.seeds.size();
  }
  // The KV cache exists only during generation: updates need its memory.
  rollout::Engine engine(
      config_,
      {.model = options_.model,
       .sequences =
           std::clamp<std::int64_t>(static_cast<std::int64_t>(completions), 1, options_.sequences),
       .longest = static_cast<std::int64_t>(longest) + options_.settings.max_tokens,
       .burst = options_.model.device.is_cuda() ? train::kMostBurst : 1},
      provider_);
  bool ended = false;
  auto settings = options_.settings;
  settings.cancelled = [&] { return ended = cancelled && cancelled(); };
  auto generated = engine.generate(requests, settings, finished);
  if (ended) return std::nullopt;
  return generated;
}

}  // namespace mgpu::rl
