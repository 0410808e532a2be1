#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/weights.hpp"

namespace mgpu::checkpoint {

// A LoRA adapter as described by adapter_config.json.
struct LoraConfig {
  std::string base_model;  // base_model_name_or_path
  std::string revision;    // of the base model; empty: unknown
  std::int64_t r = 8;
  double alpha = 8;
  double dropout = 0;
  std::vector<std::string> target_modules;  // names or suffixes of names; empty: see target_pattern
  std::string target_pattern;  // "all-linear", or a pattern that must match the whole name
  std::vector<std::string> modules_to_save;  // trained and saved in full
  bool use_rslora = false;
  bool use_dora = false;
  std::map<std::string, std::int64_t> rank_pattern;  // pattern of names -> r
  std::map<std::string, double> alpha_pattern;

  friend bool operator==(const LoraConfig&, const LoraConfig&) = default;
};

// Throws an error with the file and the key for anything but LoRA and DoRA of linear layers
// (biases, selected layers, initializations that change the base model, ...). Unknown keys, for
// example of newer versions of PEFT, are rejected if they are set.
LoraConfig parse_lora_config(std::string_view text, const std::string& file);
std::string lora_config_text(const LoraConfig& config);

// A linear layer that gets an adapter: y += scale * (x A^T) B^T.
struct LoraTarget {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  std::int64_t out = 0, in = 0;
  std::int64_t rank = 0;
  double scale = 0;  // alpha / r, or alpha / sqrt(r) with rsLoRA

  friend bool operator==(const LoraTarget&, const LoraTarget&) = default;
};

// The layers of a model that the adapter changes, in the model's order. Throws an error that names
// a target that the model does not have. `model`: all parameters of the model. "all-linear"
// excludes the head.
std::vector<LoraTarget> lora_targets(const LoraConfig& config,
                                     const std::vector<TensorShape>& model);

// The parameters that are trained and saved in full, under the model's names.
std::vector<TensorShape> saved_parameters(const LoraConfig& config,
                                          const std::vector<TensorShape>& model);

// The meaning of a key in adapter_model.safetensors.
struct AdapterKey {
  enum class Part { lora_a, lora_b, magnitude, whole };
  Part part = Part::whole;
  std::string name;  // the parameter for `whole`, else the module

  friend bool operator==(const AdapterKey&, const AdapterKey&) = default;
};

std::string adapter_key(const AdapterKey& key);
AdapterKey parse_adapter_key(std::string_view name);  // throws with the key

// All tensors of adapter_model.safetensors: A [rank, in] and B [out, rank] of each target, with
// DoRA also the magnitudes [out], then the parameters that are saved in full.
std::vector<TensorShape> adapter_plan(const LoraConfig& config,
                                      const std::vector<TensorShape>& model);

// Throws an error that names a tensor of the adapter file that is missing, has another shape or is
// unexpected.
void check_adapter(const Weights& adapter, const LoraConfig& config,
                   const std::vector<TensorShape>& model);

}  // namespace mgpu::checkpoint
