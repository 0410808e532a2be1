#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/peft.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::train {

// An adapter in PEFT's layout, as its folder describes it.
struct AdapterSource {
  std::string folder;
  checkpoint::LoraConfig lora;
};

// `adapter`: a folder or a Hub id.
AdapterSource open_adapter(const std::string& adapter);

// The layers that it changes, and the scale of what it adds; they must all be of one rank and one
// scale.
struct AdapterShape {
  model::LoraShape layers;
  double scale = 1;
};
AdapterShape shape_of(const AdapterSource& adapter, const model::ModelConfig& model);

// Sets the adapter's tensors. Throws naming one that is missing, too much or of another shape.
void load_adapter(parallel::Shards& shards, const AdapterSource& adapter,
                  const model::ModelConfig& model);

// Makes a recipe one that goes on from this adapter: its layers, rank and scale are taken. A note
// for each key that the recipe had otherwise.
std::vector<std::string> adopt_adapter_settings(const AdapterSource& adapter,
                                                const model::ModelConfig& model,
                                                TrainConfig& config);

// A trained tensor's name in PEFT's file.
std::string adapter_name(const std::string& name);

}  // namespace mgpu::train
