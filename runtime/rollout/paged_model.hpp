#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/kernels/paged.hpp"
#include "runtime/model/block.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::rollout {

using at::Tensor;

struct ModelOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  double adapter_scale = 1;
};

// A prompt to be read, and where each of its tokens' keys and values go.
struct Reading {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> pages;
};

// The next token of each sequence, on the device.
struct StepInput {
  Tensor tokens;     // int32 [sequences]
  Tensor positions;  // int32 [sequences]: how many came before
  Tensor table;      // int32 [sequences, most pages]
};

// All units of a model at hand for as long as this lives, whoever keeps them: where weights are
// spread over ranks they are gathered once, and ranks may then compute without each other.
class WholeWeights {
 public:
  WholeWeights(const model::ModelConfig& config, model::WeightProvider& provider);
  WholeWeights(const WholeWeights&) = delete;
  WholeWeights& operator=(const WholeWeights&) = delete;
  ~WholeWeights();

  const model::Unit& unit(int unit) const { return *units_[static_cast<std::size_t>(unit)]; }

 private:
  model::WeightProvider& provider_;
  std::vector<const model::Unit*> units_;
};

// A transformer that reads on where it stopped: keys and values stay in pages.
class PagedModel {
 public:
  // `room`: the longest sequence.
  PagedModel(const model::ModelConfig& config, const ModelOptions& options,
             model::WeightProvider& provider, std::int64_t pages, std::int64_t room);
  // Reads whole prompts; gives the logits behind the last token of each, [prompts, vocab].
  Tensor read(const std::vector<Reading>& prompts);

  // Reads one token of each sequence; gives the logits behind it.
  Tensor step(const StepInput& input);

  // All layers' keys and values of page `from` also stand in page `to`.
  void copy_pages(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to);

  // Bytes of the cache, for the planner's books.
  static std::int64_t page_bytes(const model::ModelConfig& config, at::ScalarType dtype);

 private:
  ops::HeadShape shape() const { return {config_.heads, config_.kv_heads, config_.head_dim}; }
  ops::Pages pages_of(std::int64_t layer) const;
  const model::Unit& unit(int unit) const { return weights_.unit(unit); }
  Tensor block(const Tensor& x, const model::Block& weights, std::int64_t layer,
               const StepInput& input, const Tensor& slots, const Tensor& lengths) const;
  Tensor head(const Tensor& x) const;

  const model::ModelConfig& config_;
  ModelOptions options_;
  WholeWeights weights_;
  std::vector<model::Block> blocks_;  // of weights_, a layer each
  Tensor keys_, values_;              // [layers, pages, kPageTokens, kv heads, head_dim]
  Tensor cos_, sin_;
};

}  // namespace mgpu::rollout
