#include "runtime/rl/engine_generator.hpp"

#include <algorithm>
#include <utility>

#include "runtime/config/planning/rollout_memory.hpp"

namespace mgpu::rl {

EngineGenerator::EngineGenerator(const model::ModelConfig& config, Options options,
                                 model::WeightProvider& provider)
    : config_(config), options_(std::move(options)), provider_(provider) {}

std::vector<std::vector<rollout::Completion>> EngineGenerator::complete(
    const std::vector<rollout::Prompt>& prompts) {
  std::size_t longest = 1, completions = 0;
  for (const auto& prompt : prompts) {
    longest = std::max(longest, prompt.tokens.size());
    completions += prompt.seeds.size();
  }
  // The cache is there while something is generated only: updates need the memory.
  rollout::Engine engine(
      config_,
      {.model = options_.model,
       .sequences =
           std::clamp<std::int64_t>(static_cast<std::int64_t>(completions), 1, options_.sequences),
       .longest = static_cast<std::int64_t>(longest) + options_.wanted.most_tokens,
       .burst = options_.model.device.is_cuda() ? train::kMostBurst : 1},
      provider_);
  return engine.generate(prompts, options_.wanted);
}

}  // namespace mgpu::rl
