#include "runtime/rl/engine_generator.hpp"

#include <algorithm>
#include <utility>

#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/profiling/range.hpp"

namespace mgpu::rl {

EngineGenerator::EngineGenerator(const model::ModelConfig& config, Options options,
                                 model::WeightProvider& provider)
    : config_(config), options_(std::move(options)), provider_(provider) {}

// For completions of at most `longest` tokens with their prompts. Beams have pages for their
// maximum length (`beams` of one prompt; 0: no beams).
EngineGenerator::Size EngineGenerator::size_of(std::int64_t completions, std::int64_t longest,
                                               std::int64_t beams) const {
  const auto pages_of_one = rollout::pages_in(longest) + 1;
  const auto sequences = std::max<std::int64_t>(1, std::min(completions, options_.sequences));
  const auto all = sequences * pages_of_one;
  const bool fits = options_.pages == 0 || all < options_.pages;
  if (beams > 0) {
    const auto fitting = fits ? sequences : (options_.pages - 1) / pages_of_one;
    return {std::max(beams, fitting), 0};
  }
  return {sequences, fits ? 0 : options_.pages - 1};
}

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
  const auto burst = options_.model.device.is_cuda() ? train::kMostBurst : 1;
  const auto all_tokens = static_cast<std::int64_t>(longest) + settings.max_tokens;
  const auto size = size_of(static_cast<std::int64_t>(completions), all_tokens + burst,
                            decoding.beams ? settings.beams.count : 0);
  // The KV cache exists only during generation: updates need its memory.
  rollout::Engine engine(config_,
                         {.model = options_.model,
                          .sequences = size.sequences,
                          .longest = all_tokens,
                          .pages = size.pages,
                          .burst = burst},
                         provider_);
  bool ended = false;
  settings.cancelled = [&] { return ended = cancelled && cancelled(); };
  auto generated = engine.generate(requests, settings, finished);
  if (ended) return std::nullopt;
  return generated;
}

}  // namespace mgpu::rl
