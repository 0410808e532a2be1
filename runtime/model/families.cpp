#include "runtime/model/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mgpu::model {
namespace {

using checkpoint::Fields;
using checkpoint::Json;

void read_attention_bias(ModelConfig& config, const Fields& top) {
  config.qkv_bias = config.o_bias = top.boolean("attention_bias", false);
}

void read_llama(ModelConfig& config, const Fields& top) {
  read_attention_bias(config, top);
  config.mlp_bias = top.boolean("mlp_bias", false);
}

void write_llama(const ModelConfig& config, Json& json) {
  json["attention_bias"] = config.qkv_bias;
  json["mlp_bias"] = config.mlp_bias;
}

// Without the key, transformers has a window of 4096; null is none.
void read_mistral(ModelConfig& config, const Fields& top) {
  if (!top.is_null("sliding_window"))
    config.sliding_window = top.integer("sliding_window", 1, std::int64_t{1} << 40, 4096);
}

void write_mistral(const ModelConfig& config, Json& json) {
  json["sliding_window"] = config.sliding_window > 0 ? Json(config.sliding_window) : Json(nullptr);
}

void read_qwen2(ModelConfig&, const Fields&) {}  // transformers ignores attention_bias

void write_qwen2(const ModelConfig&, Json& json) {
  json["use_sliding_window"] = false;
}

void read_qwen3(ModelConfig& config, const Fields& top) {
  read_attention_bias(config, top);
}

void write_qwen3(const ModelConfig& config, Json& json) {
  json["attention_bias"] = config.qkv_bias;
  json["use_sliding_window"] = false;
}

constexpr FamilyRow kFamilies[] = {
    {.family = Family::llama,
     .model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .read = read_llama,
     .write = write_llama},
    {.family = Family::mistral,
     .model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .read = read_mistral,
     .write = write_mistral},
    {.family = Family::qwen2,
     .model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .read = read_qwen2,
     .write = write_qwen2},
    {.family = Family::qwen3,
     .model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .head_dim = 128,
     .read = read_qwen3,
     .write = write_qwen3},
};

}  // namespace

std::span<const FamilyRow> families() {
  return kFamilies;
}

const FamilyRow& row_of(Family family) {
  return *std::ranges::find(kFamilies, family, &FamilyRow::family);
}

const FamilyRow* find_family(std::string_view model_type) {
  const auto found = std::ranges::find_if(
      kFamilies, [&](const FamilyRow& row) { return row.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : &*found;
}

std::string family_names() {
  std::string names;
  for (const auto& row : kFamilies) {
    const bool last = &row == std::end(kFamilies) - 1;
    names += fmt::format("{}{}", names.empty() ? "" : last ? " and " : ", ", row.model_type);
  }
  return names;
}

}  // namespace mgpu::model
