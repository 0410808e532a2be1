#include "runtime/encoder/deberta_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::encoder {
namespace {

using checkpoint::Fields;
using checkpoint::in_quotes;

// No sum of the sizes of tensors, or of a forward pass of 2^30 tokens, exceeds 63 bits.
constexpr std::int64_t kMostRows = 1 << 24, kMostLayers = 10'000;
constexpr std::int64_t kMostColumns = 1 << 17;  // width, and positions
constexpr std::int64_t kMostHeads = 1 << 10;
constexpr std::int64_t kNumber = 4;  // bytes

[[noreturn]] void refuse(const Fields& fields, const std::string& what) {
  throw rendezvous::InputError(fields.where() + ": " + what);
}

// The names in a text such as "p2c|c2p", or in a list.
std::vector<std::string> words_of(const Fields& fields, const char* key) {
  if (!fields.has(key)) return {};
  if (fields.at(key).is_array()) return fields.strings(key);
  std::vector<std::string> words(1);
  for (const char c : fields.string(key)) {
    if (c == '|') {
      words.emplace_back();
    } else if (c != ' ') {
      words.back().push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
  }
  return words;
}

bool names(const std::vector<std::string>& words, const char* wanted) {
  return std::find(words.begin(), words.end(), wanted) != words.end();
}

Activation activation_of(const Fields& fields, const char* key) {
  constexpr std::pair<const char*, Activation> kKnown[] = {
      {"gelu", Activation::gelu}, {"gelu_new", Activation::gelu_tanh},
      {"relu", Activation::relu}, {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"silu", Activation::silu}, {"swish", Activation::silu},
      {"tanh", Activation::tanh}};
  const std::string name = fields.string(key, "gelu");
  for (const auto& [known, activation] : kKnown)
    if (name == known) return activation;
  refuse(fields, fmt::format("{}: {} is not supported", key, in_quotes(name)));
}

void read_positions(const Fields& fields, DebertaConfig& config) {
  config.adds_positions = fields.boolean("position_biased_input", true);
  config.relative = fields.boolean("relative_attention", false);
  const auto kinds = words_of(fields, "pos_att_type");
  for (const auto& kind : kinds)
    if (kind != "c2p" && kind != "p2c" && !kind.empty())
      refuse(fields,
             fmt::format("pos_att_type: {} is not supported; c2p and p2c are", in_quotes(kind)));
  config.content_to_position = names(kinds, "c2p");
  config.position_to_content = names(kinds, "p2c");
  config.shares_projections = fields.boolean("share_att_key", false);
  const auto farthest = fields.integer("max_relative_positions", -1, kMostColumns, -1);
  config.farthest = farthest < 1 ? config.longest : farthest;
  config.buckets =
      std::max<std::int64_t>(0, fields.integer("position_buckets", -1, kMostColumns, -1));
  const auto middle = config.buckets / 2;  // farther distances share buckets
  if (config.buckets == 1)
    refuse(fields, "position_buckets: need at least 2, or -1 for one bucket per distance");
  if (config.buckets > 0 && config.longest - 1 > middle && config.farthest - 1 <= middle)
    refuse(fields, "max_relative_positions must be larger than half of position_buckets plus 1");
  config.norms_positions = names(words_of(fields, "norm_rel_ebd"), "layer_norm");
}

void check_sizes(const Fields& fields, const DebertaConfig& config) {
  if (config.hidden_size % config.heads != 0)
    refuse(fields, "hidden_size must be a multiple of num_attention_heads");
  if (fields.integer("attention_head_size", 1, kMostColumns, config.head_size()) !=
      config.head_size())
    fields.fail("attention_head_size", "hidden_size / num_attention_heads");
  if (fields.integer("pooler_hidden_size", 1, kMostColumns, config.hidden_size) !=
      config.hidden_size)
    fields.fail("pooler_hidden_size", "the same as hidden_size");
}

}  // namespace

bool is_deberta(std::string_view text, const std::string& file) {
  const auto json = checkpoint::parse_json(text, file);
  return Fields(json, file).string("model_type", "") == kDebertaType;
}

DebertaConfig read_deberta_config(std::string_view text, const std::string& file) {
  const auto json = checkpoint::parse_json(text, file);
  const Fields fields(json, file);
  if (fields.integer("conv_kernel_size", 0, kMostColumns, 0) > 0)
    refuse(fields, "conv_kernel_size: the convolution of DeBERTa-v2 xlarge is not supported");
  DebertaConfig config;
  config.vocab_size = fields.integer("vocab_size", 1, kMostRows);
  config.hidden_size = fields.integer("hidden_size", 1, kMostColumns);
  config.embedding_size = fields.integer("embedding_size", 1, kMostColumns, config.hidden_size);
  config.intermediate_size = fields.integer("intermediate_size", 1, kMostColumns);
  config.layers = fields.integer("num_hidden_layers", 1, kMostLayers);
  config.heads = fields.integer("num_attention_heads", 1, kMostHeads);
  config.longest = fields.integer("max_position_embeddings", 3, kMostColumns, 512);
  config.token_types = fields.integer("type_vocab_size", 0, kMostColumns, 0);
  config.norm_epsilon = fields.number("layer_norm_eps", 1e-7);
  if (!(config.norm_epsilon > 0) || !std::isfinite(config.norm_epsilon))
    fields.fail("layer_norm_eps", "a number above 0");
  read_positions(fields, config);
  config.activation = activation_of(fields, "hidden_act");
  config.pooler_activation = activation_of(fields, "pooler_hidden_act");
  check_sizes(fields, config);
  return config;
}

std::vector<checkpoint::TensorShape> deberta_tensors(const DebertaConfig& config) {
  const auto width = config.hidden_size;
  std::vector<checkpoint::TensorShape> tensors;
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    tensors.push_back({name + ".weight", {out, in}});
    tensors.push_back({name + ".bias", {out}});
  };
  const auto norm = [&](const std::string& name) {
    tensors.push_back({name + ".weight", {width}});
    tensors.push_back({name + ".bias", {width}});
  };
  const std::string embeddings = "deberta.embeddings.";
  tensors.push_back(
      {embeddings + "word_embeddings.weight", {config.vocab_size, config.embedding_size}});
  if (config.adds_positions)
    tensors.push_back(
        {embeddings + "position_embeddings.weight", {config.longest, config.embedding_size}});
  if (config.token_types > 0)
    tensors.push_back(
        {embeddings + "token_type_embeddings.weight", {config.token_types, config.embedding_size}});
  if (config.embedding_size != width)
    tensors.push_back({embeddings + "embed_proj.weight", {width, config.embedding_size}});
  norm(embeddings + "LayerNorm");
  if (config.relative)
    tensors.push_back({"deberta.encoder.rel_embeddings.weight", {2 * config.span(), width}});
  if (config.relative && config.norms_positions) norm("deberta.encoder.LayerNorm");
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("deberta.encoder.layer.{}.", i);
    for (const char* const name : {"query_proj", "key_proj", "value_proj"})
      linear(layer + "attention.self." + name, width, width);
    if (config.relative && !config.shares_projections) {
      if (config.content_to_position) linear(layer + "attention.self.pos_key_proj", width, width);
      if (config.position_to_content) linear(layer + "attention.self.pos_query_proj", width, width);
    }
    linear(layer + "attention.output.dense", width, width);
    norm(layer + "attention.output.LayerNorm");
    linear(layer + "intermediate.dense", config.intermediate_size, width);
    linear(layer + "output.dense", width, config.intermediate_size);
    norm(layer + "output.LayerNorm");
  }
  linear("pooler.dense", width, width);
  linear("classifier", 1, width);
  return tensors;
}

std::int64_t deberta_weight_bytes(const DebertaConfig& config) {
  std::int64_t numbers = 0;
  for (const auto& tensor : deberta_tensors(config)) {
    std::int64_t size = 1;
    for (const auto rows : tensor.shape) size *= rows;
    numbers += size;
  }
  return numbers * kNumber;
}

std::int64_t deberta_forward_bytes(const DebertaConfig& config, std::int64_t tokens) {
  // Attention scores: of the content, and of the positions before and after each is looked up.
  const auto longest = std::min(tokens, config.longest);
  const auto row = config.relative ? 3 * longest + 4 * config.span() : 3 * longest;
  const auto attention =
      tokens * config.heads * row + (config.relative ? longest * longest * 2 : 0);
  const auto layer = tokens * (10 * config.hidden_size + 2 * config.intermediate_size);
  return kNumber * (attention + layer);
}

}  // namespace mgpu::encoder
