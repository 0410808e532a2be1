#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mgpu::train {

// A model before any memory is allocated for it: its configuration, its tokenizer and its open
// files.
struct ModelSource {
  model::ModelConfig config;       // of the model as it is trained, with new_tokens
  std::int64_t vocab_on_disk = 0;  // rows that the embedding has in the files
  bool adds_tokens = false;        // the recipe adds tokens to the tokenizer
  std::string folder;              // of the model's files; empty: trained from scratch
  std::string config_text;         // the text of its config.json
  std::unique_ptr<checkpoint::Weights> weights;  // null: trained from scratch
  text::Tokenizer tokenizer;
  std::string chat_template;
  std::vector<std::string> notes;  // about settings that have no effect

  // Whether there are tokens whose rows of the embedding were never trained.
  bool has_new_tokens() const { return adds_tokens || config.vocab_size > vocab_on_disk; }
  bool is_in(const std::string& other_folder) const;  // whether that is the folder of its files
};

enum class ModelParts { all, without_weights };

// Throws std::runtime_error if a file is missing or something is not supported; the message names
// it and states what to do.
ModelSource open_model(const TrainConfig& config, ModelParts parts = ModelParts::all);

// The chat template that a recipe chooses; `own` is the tokenizer's. Throws if its file cannot be
// read.
std::string chosen_template(const TrainConfig& config, const std::string& own);

// The configuration alone, of the model as it is trained. Needs no weights, and a tokenizer only
// for a model from scratch (if a run is to train it, vocab_size counts until then); new_tokens
// count if there is a tokenizer. Throws as open_model.
model::ModelConfig open_model_config(const TrainConfig& config);

// Throws if the tokenizer has ids that the embedding has no row for: a row of data could contain
// such an id.
void check_vocabulary(const ModelSource& source);

// Makes the tokenizer's tokens of these roles (bos_token, eos_token) those of the model, in its
// configuration and in the text of its config.json. Requires: the tokenizer has their ids.
void use_special_tokens(ModelSource& source, const std::set<std::string>& roles);

// The adapters that a configuration requests for this model; rank 0 means none.
model::LoraShape lora_shape(const TrainConfig& config, const model::ModelConfig& model);
double lora_scale(const TrainConfig& config);

}  // namespace mgpu::train
