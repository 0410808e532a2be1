#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/kernels/paged.hpp"
#include "runtime/model/block.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/rope_table.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::rollout {

using at::Tensor;

struct ModelOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  double adapter_scale = 1;
  bool fp32_logits = false;  // are not rounded to `dtype`
};

// A prompt to prefill, and the pages for its keys and values.
struct Prefill {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> pages;
};

// The next input token of each sequence, on the device.
struct StepInput {
  Tensor tokens;     // int32 [sequences]
  Tensor positions;  // int32 [sequences]: number of earlier tokens
  Tensor table;      // int32 [sequences, max pages]
};

// Keeps all units of a model available during its lifetime. Sharded weights are gathered once,
// after which ranks can compute independently of each other.
class GatheredWeights {
 public:
  GatheredWeights(const model::ModelConfig& config, model::WeightProvider& provider);
  GatheredWeights(const GatheredWeights&) = delete;
  GatheredWeights& operator=(const GatheredWeights&) = delete;
  ~GatheredWeights();

  const model::Unit& unit(int unit) const { return *units_[static_cast<std::size_t>(unit)]; }

 private:
  model::WeightProvider& provider_;
  std::vector<const model::Unit*> units_;
};

// A transformer for incremental decoding: keys and values stay in the pages of a cache.
class PagedModel {
 public:
  // `pages`: size of the cache. `max_length`: tokens of the longest sequence.
  PagedModel(const model::ModelConfig& config, const ModelOptions& options,
             model::WeightProvider& provider, std::int64_t pages, std::int64_t max_length);
  // Computes whole prompts; returns the logits at the last token of each, [prompts, vocab].
  Tensor prefill(const std::vector<Prefill>& prompts);

  // Computes one token of each sequence; returns its logits.
  Tensor step(const StepInput& input);

  // Copies the keys and values of all layers from the pages `from` to the pages `to`.
  void copy_pages(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to);

  // Bytes of one page, for the memory planner.
  static std::int64_t page_bytes(const model::ModelConfig& config, at::ScalarType dtype);

 private:
  ops::HeadShape shape() const { return {config_.heads, config_.kv_heads, config_.head_dim}; }
  ops::Pages pages_of(std::int64_t layer) const;
  const model::Unit& unit(int unit) const { return weights_.unit(unit); }
  // The residual stream between layers, `x` plus the last layer's `mlp`, if there is one: the next
  // norm adds both.
  struct Residual {
    Tensor x;
    model::LinearOutput mlp;
  };
  // The whole residual stream and its norm.
  std::pair<Tensor, Tensor> normed(const Residual& residual, const Tensor& norm) const;
  // What every layer of a step reads.
  struct StepPlaces;
  Residual block(const Residual& residual, const model::Block& weights, std::int64_t layer,
                 const StepPlaces& places) const;
  // Of the residual stream's last norm.
  Tensor head(const Tensor& normed) const;

  const model::ModelConfig& config_;
  ModelOptions options_;
  GatheredWeights weights_;
  std::vector<model::Block> blocks_;  // from weights_, one per layer
  Tensor keys_, values_;              // [layers, pages, kPageTokens, kv heads, head_dim]
  model::RopeTable rope_;
};

}  // namespace mgpu::rollout
