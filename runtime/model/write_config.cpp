#include "runtime/model/write_config.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/model/families.hpp"
#include "runtime/model/read_config.hpp"

namespace mgpu::model {

using checkpoint::Json;

namespace {

constexpr const char* kBaseName = "the model's config.json";

// In the format of transformers 4, which transformers 5 also reads.
Json rope_scaling_of(const Rope& rope) {
  switch (rope.kind) {
    case Rope::Kind::plain:
      return nullptr;
    case Rope::Kind::linear:
      return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case Rope::Kind::llama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position}};
  }
  return nullptr;
}

Json optional_id(const std::optional<std::int32_t>& id) {
  return id ? Json(*id) : Json(nullptr);
}

Json ids(const std::vector<std::int32_t>& all) {
  if (all.empty()) return nullptr;
  return all.size() == 1 ? Json(all[0]) : Json(all);
}

Json whole_config(const ModelConfig& c) {
  const auto& family = row_of(c.family);
  Json json = {{"architectures", {family.architecture}},
               {"attention_dropout", 0.0},
               {"bos_token_id", optional_id(c.bos_token_id)},
               {"eos_token_id", ids(c.eos_token_ids)},
               {"head_dim", c.head_dim},
               {"hidden_act", "silu"},
               {"hidden_size", c.hidden_size},
               {"initializer_range", c.initializer_range},
               {"intermediate_size", c.intermediate_size},
               {"max_position_embeddings", c.max_position},
               {"model_type", family.model_type},
               {"num_attention_heads", c.heads},
               {"num_hidden_layers", c.layers},
               {"num_key_value_heads", c.kv_heads},
               {"pad_token_id", optional_id(c.pad_token_id)},
               {"rms_norm_eps", c.norm_eps},
               {"use_cache", true}};
  family.write(c, json);
  return json;
}

Json nf4_config() {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", true},
          {"bnb_4bit_compute_dtype", "bfloat16"},
          {"bnb_4bit_quant_storage", "uint8"}};
}

// Throws if the file describes a different model.
void check_same_model(const std::string& text, const ModelConfig& wanted) {
  ModelConfig read = parse_model_config(text, kBaseName);
  read.bos_token_id = wanted.bos_token_id;
  read.eos_token_ids = wanted.eos_token_ids;
  read.pad_token_id = wanted.pad_token_id;
  read.initializer_range = wanted.initializer_range;
  if (read != wanted)
    throw rendezvous::InputError(fmt::format(
        "cannot write config.json: {} describes a different model than the one that was trained",
        kBaseName));
}

}  // namespace

std::string model_config_text(const ModelConfig& config, std::string_view base) {
  Json json = base.empty() ? whole_config(config) : checkpoint::parse_json(base, kBaseName);
  json["vocab_size"] = config.vocab_size;
  json["tie_word_embeddings"] = config.tied;
  // Write both formats if the base uses the newer one: transformers 4 ignores the newer keys and
  // would silently use its defaults.
  json["rope_theta"] = config.rope.theta;
  json["rope_scaling"] = rope_scaling_of(config.rope);
  json["torch_dtype"] = config.dtype;
  if (json.contains("dtype")) json["dtype"] = config.dtype;
  if (!config.nf4)
    json.erase("quantization_config");
  else if (!json.contains("quantization_config"))
    json["quantization_config"] = nf4_config();
  std::string text = json.dump(2) + "\n";
  check_same_model(text, config);
  return text;
}

std::string generation_config_text(const ModelConfig& config) {
  Json json = {{"_from_model_config", true}};
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (!config.eos_token_ids.empty()) json["eos_token_id"] = ids(config.eos_token_ids);
  if (config.pad_token_id) json["pad_token_id"] = *config.pad_token_id;
  return json.dump(2) + "\n";
}

}  // namespace mgpu::model
