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
    const std::function<bool()>& cancelled, const Decoding& decoding) {
  const profiling::Range range("rollout");
  std::size_t longest = 1, completions = 0, of_one = 0;
  for (const auto& request : requests) {
    longest = std::max(longest, request.tokens.size());
    completions += request.seeds.size();
    of_one = std::max(of_one, request.seeds.size());
  }
  auto settings = options_.settings;
  if (settings.allowed != nullptr)
    settings.max_tokens = std::min(settings.max_tokens, settings.allowed->longest());
  if (decoding.beams)
    settings.beams = {.count = static_cast<std::int64_t>(of_one), .length_penalty = 0};
  if (!decoding.with_temperature) settings.sampling.temperature = 1;
  const auto fewest = decoding.beams ? settings.beams.count : 1;
  // The KV cache exists only during generation: updates need its memory.
  rollout::Engine engine(
      config_,
      {.model = options_.model,
       .sequences =
           std::max(fewest, std::min(static_cast<std::int64_t>(completions), options_.sequences)),
       .longest = static_cast<std::int64_t>(longest) + settings.max_tokens,
       .burst = options_.model.device.is_cuda() ? train::kMostBurst : 1},
      provider_);
  bool ended = false;
  settings.cancelled = [&] { return ended = cancelled && cancelled(); };
  auto generated = engine.generate(requests, settings, finished);
  if (ended) return std::nullopt;
  return generated;
}

}  // namespace mgpu::rl
