#pragma once

#include <memory>
#include <string>

#include "runtime/comm/comm.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::recipes {

// A model on one device to be used as it is, with an adapter or without.
struct LoadedModel {
  train::ModelSource source;
  std::unique_ptr<comm::Comm> comm;  // alone
  std::unique_ptr<parallel::Shards> shards;
  double adapter_scale = 1;
};

// `adapter`: a folder in PEFT's layout, or empty. `model` may be empty then: the adapter names it.
LoadedModel load_model(std::string model, const std::string& adapter, at::Device device,
                       at::ScalarType dtype);

// Throws if the folder holds a model.
void expect_no_model(const std::string& folder);

// The files beside a model's weights: tokenizer, config.json, generation_config.json.
void write_beside(const train::ModelSource& source, const model::ModelConfig& config,
                  const std::string& folder);

}  // namespace mgpu::recipes
