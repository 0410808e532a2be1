#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// The matrix products of a block, in order. Linear layers that read the same input are joined:
// their weights are neighbours in memory and are multiplied as one matrix.
enum class Product { qkv, o, gate_up, down };
inline constexpr int kProducts = 4;

// A linear layer of a block.
struct LinearLayer {
  Product product = Product::qkv;  // layers with the same product are joined, in this order
  std::string_view module;         // on disk, without the block's prefix: "self_attn.q_proj"
  std::int64_t out = 0, in = 0;    // rows and columns of the weight
  bool bias = false;
  bool adapters = true;  // LoRA can add an adapter to it

  std::string_view name() const;  // in recipes and PEFT's files: "q_proj"

  friend bool operator==(const LinearLayer&, const LinearLayer&) = default;
};

// The linear layers of each block, in the order of the files. This is the only list of them: the
// layout, the tensors of a checkpoint, the memory model and the adapters follow from it.
std::vector<LinearLayer> linear_layers(const ModelConfig& config);

// Those of one product.
std::vector<LinearLayer> linear_layers(const ModelConfig& config, Product product);

}  // namespace mgpu::model
