#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/grpo/advantages.hpp"
#include "runtime/rl/completions_log.hpp"
#include "runtime/rl/frozen_models.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/generator.hpp"
#include "runtime/rl/policy.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rl/recipe_rewards.hpp"
#include "runtime/rl/recommendation.hpp"
#include "runtime/rl/step_seconds.hpp"

namespace mgpu::rl {

// A request to all ranks: the same number of completions of each prompt.
struct GenerationRequest {
  std::uint64_t seed = 0;  // of this request
  std::int64_t step = 0;   // steps of the policy so far
  const std::vector<Prompt>& prompts;
  std::vector<std::uint32_t> selected;  // the prompts to complete
  std::int64_t group = 1;               // completions of each
  bool for_training = true;             // false: only rewards are needed
  Decoding decoding = {};
  // Whether this rank was asked to stop; called several times per second. Empty: it never is.
  std::function<bool()> stop_requested = {};
};

// Generates completions with the current policy, scores them and shares them among the ranks. All
// ranks call it together and get the same result.
class RolloutCollector {
 public:
  struct Options {
    grpo::AdvantageOptions advantages;
    // Training needs the log-probs of the policy that generates: it changes before they are used,
    // or they correct those of the sampler.
    bool needs_old_log_probs = false;
    // How long ranks wait for each other in a collective; a rank's rewards must end before.
    std::chrono::milliseconds collective_limit{};
  };

  // `policy`, `recommendation`, `models` and `seconds` must outlive the collector.
  RolloutCollector(const Policy& policy, const Recommendation& recommendation, FrozenModels& models,
                   StepSeconds& seconds, std::unique_ptr<Generator> generator,
                   RecipeRewards rewards, CompletionsLog log, const Options& options);

  // The completions in the order of the request, with rewards and advantages, and their metrics.
  // Nothing, on all ranks, if one of them was asked to stop before it had generated and scored its
  // part.
  std::optional<Generation> collect(const GenerationRequest& request);

  // Writes a generation to the log. Returns a table of a few completions, empty if not requested.
  std::string log(std::int64_t step, const Generation& generation,
                  const std::vector<Prompt>& prompts);

  // Call it after the last step.
  void finish() { generator_->finish(); }

 private:
  std::optional<std::vector<ScoredCompletion>> generate(const GenerationRequest& request,
                                                        const std::vector<std::int64_t>& numbers);
  bool score(std::vector<ScoredCompletion>& completions, const GenerationRequest& request,
             rewards::Deadline deadline);
  bool on_all_ranks(bool here) const;
  void add_old_log_probs(std::vector<ScoredCompletion>& completions,
                         const std::vector<Prompt>& prompts);
  void add_advantages(Generation& generation, std::int64_t group) const;

  const Policy& policy_;
  const Recommendation& recommendation_;
  FrozenModels& models_;
  StepSeconds& seconds_;
  std::unique_ptr<Generator> generator_;
  RecipeRewards rewards_;  // without the models
  CompletionsLog log_;
  Options options_;
};

}  // namespace mgpu::rl
