#include "runtime/model/read_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "rendezvous/base/contained_file.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/model/families.hpp"

namespace mgpu::model {

namespace fs = std::filesystem;
using checkpoint::brief;
using checkpoint::Fields;
using checkpoint::in_quotes;
using checkpoint::Json;
using rendezvous::is_folder;
using rendezvous::is_there;

namespace {

// A save copies these files; what is too long must be rejected before the training.
constexpr std::size_t kLongestFile = 1 << 20;
constexpr std::size_t kMostEnds = 1000;  // tokens that end a text; each new token is compared

[[noreturn]] void refuse(const Fields& fields, const std::string& what) {
  throw rendezvous::InputError(fields.where() + ": " + what);
}

const FamilyRow& family_of(const Fields& top) {
  const std::string type = top.string("model_type");
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (top.has(key)) refuse(top, fmt::format("{}: mixtures of experts are not supported", key));
  if (type.find("moe") != type.npos || type == "mixtral")
    refuse(top,
           fmt::format("model_type {}: mixtures of experts are not supported", in_quotes(type)));
  if (top.boolean("is_encoder_decoder", false))
    refuse(top, "is_encoder_decoder: only decoder-only models are supported");
  if (const auto* row = find_family(type)) return *row;
  refuse(top,
         fmt::format("model_type {} is not supported; {} are", in_quotes(type), family_names()));
}

// Some models list ids that their vocabulary does not have: no completion can end with them.
void remove_impossible_ends(std::vector<std::int32_t>& ids, std::int64_t vocab_size) {
  std::erase_if(ids, [&](std::int32_t id) { return id >= vocab_size; });
}

double positive(const Fields& fields, const char* key, double otherwise) {
  const double value = fields.number(key, otherwise);
  if (!(value > 0) || !std::isfinite(value)) fields.fail(key, "a number above 0");
  return value;
}

double positive(const Fields& fields, const char* key) {
  fields.number(key);
  return positive(fields, key, 0);
}

// Reads the type from rope_parameters (transformers 5) or rope_scaling (transformers 4, where older
// files name it "type").
Rope::Kind rope_kind(const Fields& rope) {
  const std::string type = rope.string("rope_type", rope.string("type", "default"));
  if (rope.has("rope_type") && rope.has("type") && rope.string("type") != type)
    refuse(rope, fmt::format("rope_type is {} but type {}", in_quotes(type),
                             in_quotes(rope.string("type"))));
  if (rope.has("mrope_section")) refuse(rope, "mrope_section is not supported");
  if (type == "default") return Rope::Kind::plain;
  if (type == "linear") return Rope::Kind::linear;
  if (type == "llama3") return Rope::Kind::llama3;
  refuse(rope, fmt::format("rope type {} is not supported; default, linear and llama3 are",
                           in_quotes(type)));
}

void read_stretch(Rope& rope, const Fields& fields) {
  rope.kind = rope_kind(fields);
  rope.theta = positive(fields, "rope_theta", rope.theta);
  if (fields.number("partial_rotary_factor", 1) != 1)
    fields.fail("partial_rotary_factor", "1: rotating only a part of each head is not supported");
  if (rope.kind == Rope::Kind::plain) return;
  rope.factor = positive(fields, "factor");
  if (rope.kind == Rope::Kind::linear) return;
  rope.low_freq_factor = positive(fields, "low_freq_factor");
  rope.high_freq_factor = positive(fields, "high_freq_factor");
  rope.original_max_position =
      fields.integer("original_max_position_embeddings", 1, std::int64_t{1} << 40);
  if (rope.high_freq_factor <= rope.low_freq_factor)
    fields.fail("high_freq_factor", fmt::format("above low_freq_factor {}", rope.low_freq_factor));
}

Rope rope_of(const Fields& top) {
  const Rope plain{.theta = positive(top, "rope_theta", 10000)};
  if (top.number("partial_rotary_factor", 1) != 1)
    top.fail("partial_rotary_factor", "1: rotating only a part of each head is not supported");
  std::optional<Rope> found;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!top.has(key)) continue;
    const Fields fields(top.at(key), fmt::format("{}: {}", top.where(), key));
    for (const auto& item : top.at(key).items())
      if (item.value().is_object())
        refuse(fields, "rope parameters that differ by layer are not supported");
    Rope rope = plain;
    read_stretch(rope, fields);
    if (found && rope != *found)
      refuse(top, "rope_scaling and rope_parameters contradict each other");
    found = rope;
  }
  return found.value_or(plain);
}

void refuse_sliding_windows(const Fields& top, std::int64_t layers) {
  if (top.has("layer_types")) {
    const auto types = top.strings("layer_types");
    if (types.size() != static_cast<std::size_t>(layers))
      top.fail("layer_types", fmt::format("a list of {} strings, one a layer", layers));
    for (const std::string& type : types)
      if (type != "full_attention")
        refuse(top, fmt::format("layer_types: {} is not supported, only 'full_attention' is",
                                in_quotes(type)));
    return;
  }
  if (top.boolean("use_sliding_window", false) && top.has("sliding_window") &&
      top.integer("max_window_layers", 0, INT64_MAX, 28) < layers)
    refuse(top, "use_sliding_window: sliding-window attention is not supported");
}

void read_quantization(ModelConfig& config, const Fields& top) {
  if (!top.has("quantization_config")) return;
  const Fields fields(top.at("quantization_config"), top.where() + ": quantization_config");
  const std::string method = fields.string("quant_method", "bitsandbytes");
  if (method != "bitsandbytes")
    refuse(fields, fmt::format("quant_method {} is not supported; bitsandbytes' nf4 is",
                               in_quotes(method)));
  if (fields.boolean("load_in_8bit", false))
    refuse(
        fields,
        "load_in_8bit: 8-bit weights in files are not supported; use the model that they were made "
        "from, with load_in_8bit in the recipe");
  if (!fields.boolean("load_in_4bit", false)) fields.fail("load_in_4bit", "true");
  const std::string type = fields.string("bnb_4bit_quant_type", "fp4");
  if (type != "nf4")
    refuse(fields,
           fmt::format("bnb_4bit_quant_type {} is not supported; 'nf4' is", in_quotes(type)));
  if (const auto storage = fields.string("bnb_4bit_quant_storage", "uint8"); storage != "uint8")
    refuse(fields, fmt::format("bnb_4bit_quant_storage {} is not supported; 'uint8' is",
                               in_quotes(storage)));
  config.nf4 = true;
}

std::vector<std::int32_t> token_ids(const Fields& fields, const char* key) {
  std::vector<std::int32_t> ids;
  if (!fields.has(key)) return ids;
  const Json& value = fields.at(key);
  if (value.is_array() && value.size() > kMostEnds)
    fields.fail(key, fmt::format("at most {} tokens", kMostEnds));
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& item : list) {
    const Json one = {{key, item}};
    ids.push_back(
        static_cast<std::int32_t>(Fields(one, fields.where()).integer(key, 0, kMostVocabulary)));
  }
  return ids;
}

std::optional<std::int32_t> token_id(const Fields& fields, const char* key) {
  // Some files from the time of the first Llama write -1 for "none".
  if (!fields.has(key) || fields.at(key) == -1) return std::nullopt;
  const auto ids = token_ids(fields, key);
  if (ids.size() != 1) fields.fail(key, "one token");
  return ids[0];
}

void read_sizes(ModelConfig& config, const FamilyRow& family, const Fields& top) {
  config.vocab_size = top.integer("vocab_size", 1, kMostVocabulary);
  config.hidden_size = top.integer("hidden_size", 1, kMostWidth);
  config.intermediate_size = top.integer("intermediate_size", 1, kMostMlp);
  config.layers = top.integer("num_hidden_layers", 1, kMostLayers);
  config.heads = top.integer("num_attention_heads", 1, kMostHeads);
  config.kv_heads = top.integer("num_key_value_heads", 1, kMostHeads, config.heads);
  if (config.heads % config.kv_heads != 0)
    top.fail("num_key_value_heads",
             fmt::format("a divisor of num_attention_heads, which is {}", config.heads));
  config.max_position = top.integer("max_position_embeddings", 1, std::int64_t{1} << 40);
  if (top.has("head_dim")) {
    config.head_dim = top.integer("head_dim", 1, kMostHeads);
  } else if (family.head_dim > 0) {
    config.head_dim = family.head_dim;
  } else {
    if (config.hidden_size % config.heads != 0)
      top.fail("hidden_size",
               fmt::format("a multiple of num_attention_heads, which is {}", config.heads));
    config.head_dim = config.hidden_size / config.heads;
  }
  if (config.head_dim % 2 != 0)
    refuse(top, fmt::format("head_dim {} is odd, which is not supported", config.head_dim));
}

std::string dtype_of(const Fields& top) {
  const char* const key = top.has("dtype") ? "dtype" : "torch_dtype";
  const std::string dtype = top.string(key, "float32");
  if (dtype != "bfloat16" && dtype != "float16" && dtype != "float32")
    refuse(top, fmt::format("{} {} is not supported; bfloat16, float16 and float32 are", key,
                            in_quotes(dtype)));
  return dtype;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& file) {
  const Json json = checkpoint::parse_json(text, file);
  checkpoint::check_kept(json, file);
  const Fields top(json, file);
  const auto& family = family_of(top);
  ModelConfig config{
      .family = family.family, .qkv_bias = family.qkv_bias, .qk_norm = family.qk_norm};
  if (const auto act = top.string("hidden_act", "silu"); act != "silu" && act != "swish")
    refuse(top, fmt::format("hidden_act {} is not supported; 'silu' is", in_quotes(act)));
  if (top.number("attention_dropout", 0) != 0)
    top.fail("attention_dropout", "0: attention dropout is not supported");
  read_sizes(config, family, top);
  family.read(config, top);
  refuse_sliding_windows(top, config.layers);
  read_quantization(config, top);
  config.norm_eps = positive(top, "rms_norm_eps", 1e-6);
  config.rope = rope_of(top);
  config.tied = top.boolean("tie_word_embeddings", false);
  config.dtype = dtype_of(top);
  config.initializer_range = positive(top, "initializer_range", 0.02);
  config.bos_token_id = token_id(top, "bos_token_id");
  config.pad_token_id = token_id(top, "pad_token_id");
  config.eos_token_ids = token_ids(top, "eos_token_id");
  remove_impossible_ends(config.eos_token_ids, config.vocab_size);
  return config;
}

std::vector<std::int32_t> parse_generation_eos(std::string_view text, const std::string& file) {
  const Json json = checkpoint::parse_json(text, file);
  return token_ids(Fields(json, file), "eos_token_id");
}

namespace {

std::string read_beside(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  return rendezvous::read_contained_file(folder.string(), file.filename().string(), kLongestFile);
}

}  // namespace

ModelConfig read_model_config(const std::string& path) {
  const fs::path file = is_folder(path) ? fs::path(path) / "config.json" : fs::path(path);
  if (!is_there(file) && is_there(file.parent_path() / "adapter_config.json"))
    throw rendezvous::InputError(
        fmt::format("{} contains an adapter, not a model; give its base model as the model, and "
                    "this folder as --adapter or adapter_path",
                    path));
  ModelConfig config = parse_model_config(read_beside(file), file.string());
  const fs::path generation = file.parent_path() / "generation_config.json";
  if (!is_there(generation)) return config;
  auto ends = parse_generation_eos(read_beside(generation), generation.string());
  remove_impossible_ends(ends, config.vocab_size);
  if (!ends.empty()) config.eos_token_ids = std::move(ends);
  return config;
}

}  // namespace mgpu::model
