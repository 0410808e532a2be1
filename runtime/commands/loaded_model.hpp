#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::recipes {

// A model on one device for inference, with or without an adapter.
struct LoadedModel {
  train::ModelSource source;
  std::unique_ptr<comm::Comm> comm;  // of this process alone
  std::unique_ptr<parallel::Shards> shards;
  double adapter_scale = 1;
  std::vector<std::string> notes;  // what is the adapter's instead of the model's
};

// Loads a model. `adapter` is a folder in PEFT's layout, or empty. With an adapter `model` may be
// empty: the adapter names its base model. The tokenizer is that of the adapter, if it has one.
LoadedModel load_model(std::string model, const std::string& adapter, at::Device device,
                       at::ScalarType dtype);

// Throws if the folder contains a model or an adapter.
void require_no_model(const std::string& folder);

// Creates the folder of --output.
void make_output_folder(const std::string& folder);

// Writes the files beside a model's weights: tokenizer, config.json, generation_config.json.
void write_model_files(const train::ModelSource& source, const model::ModelConfig& config,
                       const std::string& folder);

}  // namespace mgpu::recipes
