#include "runtime/train/model_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "rendezvous/base/contained_file.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/model/linear_layers.hpp"
#include "runtime/model/presets.hpp"
#include "runtime/model/read_config.hpp"
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
    throw std::runtime_error(
        "model_size trains from scratch and needs tokenizer_path: a folder with a tokenizer.json");
  }
  return text::Tokenizer::load(from);
}

}  // namespace

bool ModelSource::is_in(const std::string& other_folder) const {
  std::error_code missing;
  return !folder.empty() && fs::equivalent(folder, other_folder, missing);
}

ModelSource open_model(const TrainConfig& config) {
  std::string folder;
  if (config.model_size.empty())
    folder = checkpoint::resolve_model(config.model_name_or_path, config.model_revision);
  ModelSource source{.folder = folder, .tokenizer = open_tokenizer(config, folder)};
  if (folder.empty()) {
    source.config = from_scratch(config, source.tokenizer);
  } else {
    source.config = model::read_model_config(folder);
    source.config_text = rendezvous::read_contained_file(folder, "config.json", kLongestText);
    source.weights = std::make_unique<checkpoint::Weights>(folder);
  }
  source.vocab_on_disk = source.config.vocab_size;
  if (!config.new_tokens.empty()) {
    source.tokenizer.add_tokens(config.new_tokens, false);
    source.config.vocab_size =
        std::max<std::int64_t>(source.config.vocab_size, source.tokenizer.size());
  }
  source.chat_template = config.chat_template.empty()
                             ? source.tokenizer.chat_template()
                             : checkpoint::read_file(config.chat_template, kLongestText);
  return source;
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
  if (!config.new_tokens.empty() && fs::exists(fs::path(from) / "tokenizer.json", ignored)) {
    auto tokenizer = text::Tokenizer::load(from);
    tokenizer.add_tokens(config.new_tokens, false);
    model.vocab_size = std::max<std::int64_t>(model.vocab_size, tokenizer.size());
  }
  return model;
}

void check_vocabulary(const ModelSource& source) {
  const std::int64_t tokens = source.tokenizer.size();
  if (source.config.vocab_size >= tokens) return;
  throw std::runtime_error(fmt::format(
      "{} has vocab_size {} but its tokenizer has {} tokens; set tokenizer_path to the matching "
      "tokenizer, or list the missing tokens, such as {}, in new_tokens to extend the model",
      source.folder, source.config.vocab_size, tokens,
      source.tokenizer.token_of(static_cast<std::int32_t>(tokens - 1))));
}

void check_window(const model::ModelConfig& model, std::int64_t max_length) {
  if (model.sliding_window == 0 || max_length <= model.sliding_window) return;
  throw_recipe_error(fmt::format(
      "max_length: {} tokens are more than the model's sliding_window of {}, and sliding-window "
      "attention is not supported; set max_length to at most {}",
      max_length, model.sliding_window, model.sliding_window));
}

model::LoraShape lora_shape(const TrainConfig& config, const model::ModelConfig& model) {
  model::LoraShape shape;
  if (!config.use_peft) return shape;
  const auto supported = adaptable_layers(model);
  shape.rank = config.lora_r;
  for (const auto& name : config.lora_target_modules) {
    if (name == "all-linear" || name == "all") {
      shape.targets = supported;
    } else if (supported.contains(name)) {
      shape.targets.insert(name);
    } else {
      throw std::runtime_error(
          fmt::format("lora_target_modules: {} is not supported; supported are {} and all-linear",
                      name, fmt::join(supported, ", ")));
    }
  }
  if (shape.targets.empty()) shape.targets = supported;
  static const std::set<std::string> whole{"embed_tokens", "lm_head"};
  for (const auto& name : config.lora_modules_to_save) {
    if (!whole.contains(name)) {
      throw std::runtime_error(fmt::format(
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
