#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cmath>
#include <vector>

#include "runtime/model/layout.hpp"
#include "runtime/model/unit.hpp"

// A model that an engine runs in no time.
namespace mgpu::rollout_test {

inline constexpr std::int64_t kVocabulary = 50;

inline model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.max_position = 256;
  config.tied = true;
  return config;
}

// Random weights that are always available.
class Kept final : public model::WeightProvider {
 public:
  explicit Kept(const model::ModelConfig& c) {
    at::manual_seed(7);
    units_.resize(static_cast<std::size_t>(model::end_unit(c)) + 1);
    units_[model::kEmbeddingUnit].embedding = at::randn({c.vocab_size, c.hidden_size});
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      auto& block = units_[static_cast<std::size_t>(model::block_unit(layer))].block;
      block.input_norm = at::ones({c.hidden_size});
      block.post_norm = at::ones({c.hidden_size});
      block.qkv.weight = random((c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden_size);
      block.o.weight = random(c.hidden_size, c.heads * c.head_dim);
      block.gate_up.weight = random(2 * c.intermediate_size, c.hidden_size);
      block.down.weight = random(c.hidden_size, c.intermediate_size);
    }
    units_[static_cast<std::size_t>(model::end_unit(c))].last_norm =
        at::ones({c.hidden_size}).mul(.3);
  }

  const model::Unit& weights(int unit) override {
    return units_.at(static_cast<std::size_t>(unit));
  }
  void release(int) override {}
  void prefetch(int) override {}
  const model::Unit& gradients(int unit) override { return weights(unit); }
  void gradients_done(int) override {}

 private:
  static at::Tensor random(std::int64_t out, std::int64_t in) {
    return at::randn({out, in}).mul(1 / std::sqrt(static_cast<double>(in)));
  }

  std::vector<model::Unit> units_;
};

}  // namespace mgpu::rollout_test
