#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/peft.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::train {

// A LoRA adapter in PEFT's layout: its folder and the adapter_config.json in it.
struct AdapterSource {
  std::string folder;
  checkpoint::LoraConfig lora;
};

// Makes `model` the one that the adapter was trained with: if the adapter's folder has a tokenizer,
// takes its tokens, its chat template and its tokens for the beginning and the end of a text; if
// the adapter has the embedding or the head with more rows than the model, extends the vocabulary
// to them. Returns a note for each difference.
std::vector<std::string> adopt_adapter_vocabulary(const AdapterSource& adapter, ModelSource& model);

// Reads the configuration of `adapter`, a folder or a Hub id. The weights are not read yet.
AdapterSource open_adapter(const std::string& adapter);

// The layers that the adapter changes, and the factor its output is scaled by. Throws if layers
// differ in rank or scale.
struct AdapterShape {
  model::LoraShape layers;
  double scale = 1;
};
AdapterShape shape_of(const AdapterSource& adapter, const model::ModelConfig& model);

// Copies the adapter's tensors into `shards`. Throws if a tensor is missing, unexpected or of
// another shape; the message names it.
void load_adapter(parallel::Shards& shards, const AdapterSource& adapter,
                  const model::ModelConfig& model);
// Copies the adapter's tensors into the optimizer's master weights. `shards` may hold them rounded
// to 16 bits; the master weights have every bit of the files.
void load_master_weights(optim::Optimizer& optimizer, const AdapterSource& adapter,
                         const model::ModelConfig& model);

// Changes `config` so that training continues from this adapter: takes over its layers, rank and
// scale. Returns notes for the user: one that describes the adapter and one for each key whose
// value in the recipe was different.
std::vector<std::string> adopt_adapter_settings(const AdapterSource& adapter,
                                                const model::ModelConfig& model,
                                                TrainConfig& config);

// The name that PEFT's file uses for the trained tensor `name`.
std::string adapter_name(const std::string& name);

}  // namespace mgpu::train
