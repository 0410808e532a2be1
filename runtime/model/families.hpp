#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/checkpoint/json_text.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// A family of models: what its members have in common, and the keys of config.json that only it
// has. All families have the block of block.hpp.
struct FamilyRow {
  Family family = Family::llama;
  const char* model_type = "";    // in config.json
  const char* architecture = "";  // in config.json: the class in transformers
  bool qkv_bias = false;          // whatever config.json says
  bool qk_norm = false;
  std::int64_t head_dim = 0;  // if config.json has no head_dim; 0: hidden_size / heads
  // Reads the family's own keys. Throws if one of them requests something that is not supported.
  void (*read)(ModelConfig& config, const checkpoint::Fields& top) = nullptr;
  // Writes them for a model that did not come from a file.
  void (*write)(const ModelConfig& config, checkpoint::Json& json) = nullptr;
};

// All families that can be trained. A new one is a row here, its reader and writer, and a line in
// the tests that compare families with transformers.
std::span<const FamilyRow> families();

const FamilyRow& row_of(Family family);
const FamilyRow* find_family(std::string_view model_type);  // nullptr if there is none

std::string family_names();  // for messages: "llama, mistral, qwen2 and qwen3"

}  // namespace mgpu::model
