#pragma once

#include <ATen/ops/randn.h>

#include <chrono>
#include <string>

#include "runtime/model/linear_layers.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/parallel/shards.hpp"

// Models of known shapes with random weights, for benchmarks.
namespace mgpu::bench {

inline model::ModelConfig shape(const std::string& name) {
  model::ModelConfig c;
  c.qkv_bias = true;
  c.head_dim = 64;
  c.vocab_size = 151936;
  c.rope.theta = 1e6;
  const auto set = [&](long h, long f, long layers, long heads, long kv, bool tied) {
    c.hidden_size = h;
    c.intermediate_size = f;
    c.layers = layers;
    c.heads = heads;
    c.kv_heads = kv;
    c.head_dim = h / heads;
    c.tied = tied;
  };
  if (name == "0.5B") set(896, 4864, 24, 14, 2, true);
  if (name == "1.5B") set(1536, 8960, 28, 12, 2, true);
  if (name == "3B") set(2048, 11008, 36, 16, 2, true);
  if (name == "7B") {
    set(3584, 18944, 28, 28, 4, false);
    c.vocab_size = 152064;
  }
  if (name == "4B" || name == "8B") {  // of Qwen3
    if (name == "4B") set(2560, 9728, 36, 32, 8, true);
    if (name == "8B") set(4096, 12288, 36, 32, 8, false);
    c.head_dim = 128;
    c.qkv_bias = false;
    c.qk_norm = true;
  }
  if (name == "tiny") {
    set(256, 512, 4, 4, 2, true);
    c.vocab_size = 1000;
  }
  return c;
}

// Adapters for all linear layers; rank 0 means none.
inline model::LoraShape lora_of_rank(long rank) {
  model::LoraShape lora;
  if (rank == 0) return lora;
  lora.rank = rank;
  for (const auto& layer : model::linear_layers({})) lora.targets.emplace(layer.name());
  return lora;
}

inline void fill(parallel::Shards& shards, at::Device device) {
  for (const auto& unit : shards.layout().units)
    for (const auto* flat : {&unit.trained, &unit.frozen})
      for (const auto& slot : flat->slots) {
        const bool norm = slot.name.find("norm") != std::string::npos;
        const bool zero = slot.name.find("lora_B") != std::string::npos ||
                          slot.name.find("bias") != std::string::npos;
        auto value = at::randn(slot.shape, at::TensorOptions(device)).mul_(0.02);
        if (norm) value.fill_(1);
        if (zero) value.zero_();
        shards.set(slot.name, value);
      }
}

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace mgpu::bench
