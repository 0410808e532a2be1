#pragma once

#include "runtime/rl/generator.hpp"

namespace mgpu::rl {

// Generates with our own engine, on the weights that are being trained.
class EngineGenerator : public Generator {
 public:
  struct Options {
    rollout::ModelOptions model;
    rollout::GenerationSettings settings;  // without beams
    std::int64_t sequences = 64;           // generated concurrently, at most
    std::int64_t pages = 0;                // of the KV cache, at most; 0: enough for all sequences
  };

  EngineGenerator(const model::ModelConfig& config, Options options,
                  model::WeightProvider& provider);

  bool computes_here() const override { return true; }
  void sync_weights(std::int64_t) override {}
  std::optional<Completions> complete(const std::vector<rollout::Request>& requests,
                                      const rollout::RequestFinished& finished,
                                      const std::function<bool()>& cancelled,
                                      const Decoding& decoding) override;
  void finish() override {}

 private:
  struct Size {
    std::int64_t sequences, pages;  // as in EngineOptions
  };
  Size size_of(std::int64_t completions, std::int64_t longest, std::int64_t beams) const;

  const model::ModelConfig& config_;
  Options options_;
  model::WeightProvider& provider_;
};

}  // namespace mgpu::rl
