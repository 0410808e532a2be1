#include "runtime/train/model_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "rendezvous/base/contained_file.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/model/linear_layers.hpp"
#include "runtime/model/presets.hpp"
#include "runtime/model/read_config.hpp"
#include "runtime/text/named_templates.hpp"
#include "runtime/train/new_tokenizer.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestText = 64 << 20;

// The linear layers that can have adapters.
std::set<std::string> adaptable_layers(const model::ModelConfig& model) {
  std::set<std::string> names;
  for (const auto& layer : model::linear_layers(model))
    if (layer.adapters) names.emplace(layer.name());
  return names;
}

bool adds_tokens(const TrainConfig& config) {
  return !config.new_tokens.empty() || !config.new_special_tokens.empty() ||
         !config.special_tokens.empty();
}

model::ModelConfig from_scratch(const TrainConfig& config, const text::Tokenizer& tokenizer) {
  auto model = model::preset(config.model_size, tokenizer.size(), config.model_family);
  model.bos_token_id = tokenizer.bos_id();
  model.pad_token_id = tokenizer.pad_id();
  if (const auto eos = tokenizer.eos_id()) model.eos_token_ids = {*eos};
  return model;
}

text::Tokenizer open_tokenizer(const TrainConfig& config, const std::string& folder) {
  std::string from = config.tokenizer_path.empty() ? folder : config.tokenizer_path;
  if (from.empty() && needs_new_tokenizer(config)) from = new_tokenizer_folder(config);
  if (from.empty()) {
    throw rendezvous::InputError(
        "model_size trains from scratch and needs tokenizer_path: a folder with a tokenizer.json");
  }
  return text::Tokenizer::load(from);
}

// Adds the new tokens of a recipe and gives the special ones their roles. Nothing is computed with
// padding, so a pad_token gets no row of the embedding.
void add_tokens(const TrainConfig& config, text::Tokenizer& tokenizer) {
  tokenizer.add_tokens(config.new_tokens, false);
  tokenizer.add_tokens(config.new_special_tokens, true);
  for (const auto& [role, token] : config.special_tokens)
    if (role != "pad_token" && !tokenizer.id_of(token)) tokenizer.add_tokens({token}, true);
}

void use_tokens(const TrainConfig& config, ModelSource& source) {
  auto& tokenizer = source.tokenizer;
  const auto size = tokenizer.size();
  add_tokens(config, tokenizer);
  if (!config.new_tokens.empty() || tokenizer.size() > size)
    source.config.vocab_size = std::max<std::int64_t>(source.config.vocab_size, tokenizer.size());
  source.adds_tokens = tokenizer.size() > size;
  std::set<std::string> roles;
  for (const auto& [role, token] : config.special_tokens) {
    if (tokenizer.id_of(token)) {
      tokenizer.set_special_token(role, token);
      roles.insert(role);
    } else {
      source.notes.push_back(fmt::format(
          "special_tokens: pad_token {} has no effect: it is not in the vocabulary, and nothing is "
          "computed with padding",
          token));
    }
  }
  use_special_tokens(source, roles);
}

}  // namespace

bool ModelSource::is_in(const std::string& other_folder) const {
  std::error_code missing;
  return !folder.empty() && fs::equivalent(folder, other_folder, missing);
}

ModelSource open_model(const TrainConfig& config, ModelParts parts) {
  std::string folder;
  if (config.model_size.empty())
    folder =
        (parts == ModelParts::all ? checkpoint::resolve_model : checkpoint::resolve_model_config)(
            config.model_name_or_path, config.model_revision);
  ModelSource source{.folder = folder, .tokenizer = open_tokenizer(config, folder)};
  if (folder.empty()) {
    source.config = from_scratch(config, source.tokenizer);
  } else {
    source.config = model::read_model_config(folder);
    source.config_text = rendezvous::read_contained_file(folder, "config.json", kLongestText);
    if (parts == ModelParts::all) source.weights = std::make_unique<checkpoint::Weights>(folder);
  }
  source.vocab_on_disk = source.config.vocab_size;
  use_tokens(config, source);
  source.chat_template = chosen_template(config, source.tokenizer.chat_template());
  if (source.chat_template != source.tokenizer.chat_template())
    source.tokenizer.set_chat_template(source.chat_template);
  return source;
}

std::string chosen_template(const TrainConfig& config, const std::string& own) {
  const std::string_view wanted = config.chat_template, fallback = kTokenizerTemplateOr;
  const auto named = text::named_chat_template(
      wanted.starts_with(fallback) ? wanted.substr(fallback.size()) : wanted);
  std::string source;
  if (wanted.empty() || (wanted.starts_with(fallback) && !own.empty()))
    source = own;
  else if (!named.empty() || is_template_text(config.chat_template))
    source = named.empty() ? config.chat_template : named;
  else
    source = checkpoint::read_file(config.chat_template, kLongestText);
  if (config.default_system_prompt.empty() || source.empty()) return source;
  return text::with_default_system(source, config.default_system_prompt);
}

model::ModelConfig open_model_config(const TrainConfig& config) {
  if (needs_new_tokenizer(config) && !fs::exists(new_tokenizer_folder(config)))
    return model::preset(config.model_size, config.vocab_size, config.model_family);
  if (!config.model_size.empty()) return from_scratch(config, open_tokenizer(config, ""));
  const auto folder =
      checkpoint::resolve_model_config(config.model_name_or_path, config.model_revision);
  auto model = model::read_model_config(folder);
  const auto from = config.tokenizer_path.empty() ? folder : config.tokenizer_path;
  std::error_code ignored;
  if (adds_tokens(config) && fs::exists(fs::path(from) / "tokenizer.json", ignored)) {
    auto tokenizer = text::Tokenizer::load(from);
    const auto size = tokenizer.size();
    add_tokens(config, tokenizer);
    if (config.new_tokens.empty() && tokenizer.size() == size) return model;
    model.vocab_size = std::max<std::int64_t>(model.vocab_size, tokenizer.size());
  }
  return model;
}

void check_vocabulary(const ModelSource& source) {
  const std::int64_t tokens = source.tokenizer.size();
  if (source.config.vocab_size >= tokens) return;
  throw rendezvous::InputError(fmt::format(
      "{} has vocab_size {} but its tokenizer has {} tokens; set tokenizer_path to the matching "
      "tokenizer, or list the missing tokens, such as {}, in new_tokens to extend the model",
      source.folder, source.config.vocab_size, tokens,
      source.tokenizer.token_of(static_cast<std::int32_t>(tokens - 1))));
}

void use_special_tokens(ModelSource& source, const std::set<std::string>& roles) {
  const bool bos = roles.contains("bos_token"), eos = roles.contains("eos_token");
  if (bos) source.config.bos_token_id = source.tokenizer.bos_id();
  if (eos) source.config.eos_token_ids = {source.tokenizer.eos_id().value()};
  if (source.config_text.empty()) return;
  auto json = nlohmann::ordered_json::parse(source.config_text);
  if (bos) json["bos_token_id"] = source.tokenizer.bos_id().value();
  if (eos) json["eos_token_id"] = source.tokenizer.eos_id().value();
  source.config_text = json.dump(2) + "\n";
}

model::LoraShape lora_shape(const TrainConfig& config, const model::ModelConfig& model) {
  model::LoraShape shape;
  if (!config.use_peft) return shape;
  const auto supported = adaptable_layers(model);
  shape.rank = config.lora_r;
  shape.dora = config.use_dora;
  shape.rate_ratio = config.loraplus_lr_ratio;
  for (const auto& name : config.lora_target_modules) {
    if (name == "all-linear" || name == "all") {
      shape.targets = supported;
    } else if (supported.contains(name)) {
      shape.targets.insert(name);
    } else {
      throw_recipe_error(
          fmt::format("lora_target_modules: {} is not supported; supported are {} and all-linear",
                      name, fmt::join(supported, ", ")));
    }
  }
  if (shape.targets.empty()) shape.targets = supported;
  static const std::set<std::string> whole{"embed_tokens", "lm_head"};
  for (const auto& name : config.lora_modules_to_save) {
    if (!whole.contains(name)) {
      throw_recipe_error(fmt::format(
          "lora_modules_to_save: {} cannot be trained beside adapters; supported are {}", name,
          fmt::join(whole, ", ")));
    }
    shape.whole.insert(name);
  }
  return shape;
}

double lora_scale(const TrainConfig& config) {
  const auto rank = static_cast<double>(config.lora_r);
  return config.lora_alpha / (config.use_rslora ? std::sqrt(rank) : rank);
}

}  // namespace mgpu::train
