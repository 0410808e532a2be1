#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/model/block.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::rollout {

using at::Tensor;

// Continues sequences token by token, keeping the keys and values of what has been read. Weights
// come from a Keeper, so a model decodes while it is being trained.
class Decoder {
 public:
  struct Options {
    at::Device device = at::kCPU;
    at::ScalarType dtype = at::kFloat;
    double adapter_scale = 1;
  };

  // `room` is how long a sequence may become.
  Decoder(const model::ModelConfig& config, const Options& options, model::Keeper& keeper,
          std::int64_t sequences, std::int64_t room);

  // Reads the prompts, one a sequence, none empty. Gives the logits behind each last token, fp32
  // [sequences, vocab].
  Tensor read(const std::vector<std::vector<std::int32_t>>& prompts);

  // Reads one more token of every sequence and gives the logits behind it.
  Tensor read(const std::vector<std::int32_t>& tokens);

 private:
  Tensor block(const Tensor& x, const model::Block& weights, int layer, const Tensor& positions);
  Tensor attend(const Tensor& qkv, int layer);
  Tensor head(const Tensor& x);

  const model::ModelConfig& config_;
  Options options_;
  model::Keeper& keeper_;
  std::int64_t sequences_, room_;
  std::vector<Tensor> keys_, values_;  // per layer, [sequences, room, kv heads, head_dim]
  std::vector<std::int64_t> lengths_;  // read so far, of each sequence
  Tensor cos_, sin_;
};

}  // namespace mgpu::rollout
