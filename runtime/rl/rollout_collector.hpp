#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/rewards/reward.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/generator.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// A request to a policy: the same number of completions of each prompt.
struct GenerationRequest {
  std::uint64_t seed = 0;  // of this request
  std::vector<std::uint32_t> prompts;
  std::vector<std::int64_t> numbers;  // their numbers among the prompts of all ranks
  std::int64_t group = 1;
};

// Generates completions of this rank's prompts with the current policy and scores them with the
// reward functions.
class RolloutCollector {
 public:
  RolloutCollector(const train::ModelSource& source, Generator& generator,
                   std::vector<std::unique_ptr<rewards::Reward>>& rewards);

  // The completions, prompt by prompt. Their rewards are set, their advantages are not.
  std::vector<ScoredCompletion> collect(const GenerationRequest& request,
                                        const std::vector<Prompt>& prompts);

 private:
  void score(std::vector<ScoredCompletion>& completions, std::int64_t group,
             const std::vector<Prompt>& prompts);

  const train::ModelSource& source_;
  Generator& generator_;
  std::vector<std::unique_ptr<rewards::Reward>>& rewards_;
};

}  // namespace mgpu::rl
