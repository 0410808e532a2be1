#pragma once

#include "runtime/rl/generator.hpp"

namespace mgpu::rl {

// Our own engine, on the weights that learn.
class EngineGenerator : public Generator {
 public:
  struct Options {
    rollout::ModelOptions model;
    rollout::Wanted wanted;
    std::int64_t sequences = 64;
  };

  EngineGenerator(const model::ModelConfig& config, Options options,
                  model::WeightProvider& provider);

  void renew(std::int64_t) override {}
  std::vector<std::vector<rollout::Completion>> complete(
      const std::vector<rollout::Prompt>& prompts) override;
  void finish() override {}

 private:
  const model::ModelConfig& config_;
  Options options_;
  model::WeightProvider& provider_;
};

}  // namespace mgpu::rl
