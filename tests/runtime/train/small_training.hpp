#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/model/layout.hpp"

namespace mgpu::tests {

// A model with 20 tokens that trains in milliseconds.
inline model::ModelConfig small_config(bool tied, int layers = 2) {
  model::ModelConfig config;
  config.vocab_size = 20;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.layers = layers;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.max_position = 64;
  config.qkv_bias = true;
  config.tied = tied;
  return config;
}

// A sequence of seven tokens of such a model; each but the first is a target.
inline data::Batch sentence_from(int first_token) {
  data::BatchBuilder builder;
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 7; ++i) tokens.push_back((first_token + 3 * i) % 20);
  builder.add({tokens});
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) builder.set_target(i, tokens[i + 1]);
  return builder.take();
}

}  // namespace mgpu::tests
