#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/checkpoint/peft.hpp"

namespace mgpu::checkpoint {

namespace {

constexpr std::int64_t kMostRank = 1 << 20;
constexpr std::size_t kMostPatterns = 4096;  // each is matched against every linear layer

// Keys that never affect what is computed.
const std::set<std::string, std::less<>> kIgnoredKeys = {
    "auto_mapping", "inference_mode",    "megatron_core",
    "peft_version", "qalora_group_size", "task_type",
};
const std::set<std::string, std::less<>> kSupportedKeys = {
    "alpha_pattern",
    "base_model_name_or_path",
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "revision",
    "target_modules",
    "use_dora",
    "use_rslora",
};

bool is_set(const Json& value) {
  return !(value.is_null() || value == false || (value.is_structured() && value.empty()));
}

void reject_unsupported_keys(const Json& json, const Fields& top) {
  for (const auto& [key, value] : json.items())
    if (!kIgnoredKeys.contains(key) && !kSupportedKeys.contains(key) && is_set(value))
      throw rendezvous::InputError(fmt::format(
          "{}: {} is not supported; only LoRA, rsLoRA and DoRA are", top.where(), in_quotes(key)));
  if (top.string("peft_type") != "LORA") top.fail("peft_type", "'LORA'");
  if (top.string("bias", "none") != "none")
    top.fail("bias", "'none': trained biases are not supported");
  if (!top.has("init_lora_weights")) return;
  // Other values, such as pissa, subtract the adapter's initial value from the base weights.
  const Json& start = top.at("init_lora_weights");
  if (!start.is_boolean() && start != "gaussian")
    top.fail("init_lora_weights", "true, false or 'gaussian'");
}

void read_targets(LoraConfig& config, const Fields& top) {
  const Json& targets = top.at("target_modules");
  if (targets.is_string())
    config.target_pattern = targets.get<std::string>();
  else
    config.target_modules = top.strings("target_modules");
  std::ranges::sort(config.target_modules);
  if (config.target_modules.empty() && config.target_pattern.empty())
    top.fail("target_modules", "a list of names or a pattern");
}

template <class Value, class Read>
std::map<std::string, Value> read_pattern(const Fields& top, const char* key, Read read) {
  std::map<std::string, Value> values;
  if (!top.has(key)) return values;
  const Fields fields(top.at(key), fmt::format("{}: {}", top.where(), key));
  if (top.at(key).size() > kMostPatterns)
    top.fail(key, fmt::format("at most {} patterns", kMostPatterns));
  for (const auto& item : top.at(key).items())
    values.emplace(item.key(), read(fields, item.key().c_str()));
  return values;
}

double finite(const Fields& fields, const char* key) {
  const double value = fields.number(key);
  if (!std::isfinite(value)) fields.fail(key, "a finite number");
  return value;
}

// Writes 16 rather than 16.0, because PEFT declares an integer.
Json number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace

LoraConfig parse_lora_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const Fields top(json, file);
  reject_unsupported_keys(json, top);
  LoraConfig config{.base_model = top.string("base_model_name_or_path", ""),
                    .revision = top.string("revision", ""),
                    .r = top.integer("r", 1, kMostRank),
                    .alpha = finite(top, "lora_alpha"),
                    .dropout = top.number("lora_dropout", 0),
                    .modules_to_save = top.strings("modules_to_save"),
                    .use_rslora = top.boolean("use_rslora", false),
                    .use_dora = top.boolean("use_dora", false)};
  if (!(config.dropout >= 0 && config.dropout < 1))
    top.fail("lora_dropout", "a number from 0 to below 1");
  read_targets(config, top);
  config.rank_pattern = read_pattern<std::int64_t>(
      top, "rank_pattern",
      [](const Fields& fields, const char* key) { return fields.integer(key, 1, kMostRank); });
  config.alpha_pattern = read_pattern<double>(top, "alpha_pattern", finite);
  return config;
}

std::string lora_config_text(const LoraConfig& config) {
  Json json = {{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"base_model_name_or_path", config.base_model},
               {"r", config.r},
               {"lora_alpha", number_text(config.alpha)},
               {"lora_dropout", config.dropout},
               {"target_modules", config.target_modules},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"use_rslora", config.use_rslora},
               {"use_dora", config.use_dora},
               {"modules_to_save", nullptr},
               {"rank_pattern", config.rank_pattern},
               {"alpha_pattern", Json::object()},
               {"layers_to_transform", nullptr},
               {"layers_pattern", nullptr},
               {"revision", nullptr},
               {"auto_mapping", nullptr}};
  if (config.base_model.empty()) json["base_model_name_or_path"] = nullptr;
  if (!config.revision.empty()) json["revision"] = config.revision;
  if (!config.target_pattern.empty()) json["target_modules"] = config.target_pattern;
  if (!config.modules_to_save.empty()) json["modules_to_save"] = config.modules_to_save;
  for (const auto& [pattern, alpha] : config.alpha_pattern)
    json["alpha_pattern"][pattern] = number_text(alpha);
  return json.dump(2) + "\n";
}

}  // namespace mgpu::checkpoint
