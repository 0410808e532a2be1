#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mgpu::train {

// Where a model comes from: everything its files say, before memory is touched.
struct ModelSource {
  model::ModelConfig config;                     // as it is trained, new tokens included
  std::int64_t vocab_on_disk = 0;                // rows of the embedding in the files
  std::string folder;                            // of the model; empty: from scratch
  std::string config_text;                       // of its config.json
  std::unique_ptr<checkpoint::Weights> weights;  // null: from scratch
  text::Tokenizer tokenizer;
  std::string chat_template;
};

// Throws std::runtime_error naming what is missing or not supported, and what to do.
ModelSource open_model(const TrainConfig& config);

// Throws if the tokenizer has ids that the model has no row for: nothing would stop a row of data
// from holding one.
void check_vocabulary(const ModelSource& source);

// The adapters that a configuration asks for; rank 0: none.
model::LoraShape lora_shape(const TrainConfig& config);
double lora_scale(const TrainConfig& config);

}  // namespace mgpu::train
