#include "runtime/rl/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/config/grpo_choices.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/data/row.hpp"
#include "runtime/hub/repository.hpp"
#include "runtime/rewards/catalog.hpp"

namespace mgpu::rl {
namespace {

using train::GrpoValues;
using train::YamlNode;
using Json = nlohmann::ordered_json;

constexpr const char* kRewardKeys[] = {"cosine_min_value_wrong",
                                       "cosine_max_value_wrong",
                                       "cosine_min_value_correct",
                                       "cosine_max_value_correct",
                                       "cosine_max_len",
                                       "repetition_n_grams",
                                       "repetition_max_penalty",
                                       "max_completion_len",
                                       "soft_punish_cache",
                                       "length_scope",
                                       "reward_on_error",
                                       "reward_timeout",
                                       "reward_concurrency",
                                       "reasoning_delimiters",
                                       "reward_rules",
                                       "info_file",
                                       "ada_path",
                                       "reward_python"};

// An unquoted scalar that parses as a number or a boolean becomes one.
Json scalar(const YamlNode& node) {
  if (node.quoted) return node.text;
  if (train::is_null(node)) return nullptr;
  const auto parsed = rendezvous::parse_untrusted_json<Json>(node.text);
  if (parsed.is_number() || parsed.is_boolean()) return parsed;
  return node.text;
}

Json json_of(const YamlNode& node) {
  if (node.is_list()) {
    Json list = Json::array();
    for (const auto& item : node.items) list.push_back(json_of(item));
    return list;
  }
  if (!node.is_map()) return scalar(node);
  Json map = Json::object();
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2)
    map[node.items[i].text] = json_of(node.items[i + 1]);
  return map;
}

// A stop text with a partial UTF-8 character would never match: completions are compared as text.
void check_characters(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto length = data::character_length(std::string_view(text).substr(at));
    if (length == 0)
      throw rendezvous::InputError(
          fmt::format("generation_kwargs: stop: byte {} of {} (0x{:02x}) is not the start of a "
                      "valid UTF-8 character",
                      at + 1, text.size(), static_cast<unsigned char>(text[at])));
    at += length;
  }
}

std::vector<std::string> stop_texts(const Json& stop) {
  std::vector<std::string> texts;
  for (const auto& text : stop.is_array() ? stop : Json::array({stop})) {
    if (!text.is_string() || text.get<std::string>().empty())
      throw rendezvous::InputError(
          "generation_kwargs: stop must be a non-empty text or a list of non-empty texts");
    check_characters(text.get_ref<const std::string&>());
    texts.push_back(text);
  }
  return texts;
}

}  // namespace

rollout::GenerationSettings generation_settings(const train::TrainConfig& config) {
  const GrpoValues values(config);
  rollout::GenerationSettings settings;
  settings.sampling.temperature = values.number("temperature").value_or(1);
  if (settings.sampling.temperature <= 0)
    throw rendezvous::InputError(
        "temperature: must be above 0, because the completions of one prompt must differ");
  settings.sampling.top_k = std::max<std::int64_t>(0, values.whole("top_k").value_or(0));
  settings.sampling.top_p = values.number("top_p").value_or(1);
  settings.sampling.min_p = values.number("min_p").value_or(0);
  settings.repetition_penalty = values.number("repetition_penalty").value_or(1);
  settings.max_tokens = values.whole("max_completion_length").value_or(512);
  if (settings.max_tokens < 1)
    throw rendezvous::InputError("max_completion_length: must be at least 1");
  const auto more = json_of(values.node("generation_kwargs"));
  if (more.contains("stop")) settings.stop_texts = stop_texts(more.at("stop"));
  for (const auto& [key, value] : more.items())
    if (key != "stop" && !values.uses_server())
      throw rendezvous::InputError(fmt::format(
          "generation_kwargs: {} is not supported without a server; supported: stop (texts)", key));
  return settings;
}

http::Address server_address(const train::TrainConfig& config) {
  const GrpoValues values(config);
  const auto base = values.text("vllm_server_base_url");
  const char* key = base.empty() ? "vllm_server_host" : "vllm_server_base_url";
  try {
    if (!base.empty()) return http::address_of(base);
    auto address = http::address_of("http://" + values.text("vllm_server_host") + ":" +
                                    values.text("vllm_server_port"));
    if (!address.path.empty())
      throw rendezvous::InputError("it must be a host name or address only");
    return address;
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("{}: {}", key, e.what()));
  }
}

nlohmann::json server_request(const train::TrainConfig& config) {
  constexpr const char* kReserved[] = {"model",
                                       "prompt",
                                       "n",
                                       "max_tokens",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "seed",
                                       "stop_token_ids",
                                       "repetition_penalty",
                                       "stream",
                                       "echo",
                                       "logprobs",
                                       "best_of",
                                       "return_token_ids",
                                       "return_tokens_as_token_ids"};
  const GrpoValues values(config);
  nlohmann::json request = nlohmann::json::object();
  const auto more = json_of(values.node("generation_kwargs"));
  for (const auto& [key, value] : more.items()) {
    if (std::ranges::find(kReserved, std::string_view(key)) != std::end(kReserved))
      throw rendezvous::InputError(
          fmt::format("generation_kwargs: {} cannot be set here; other keys of the recipe set it "
                      "for the server",
                      key));
    if (key != "stop") request[key] = nlohmann::json(value);
  }
  if (const auto regex = values.text("vllm_structured_outputs_regex"); !regex.empty())
    request["structured_outputs"] = {{"regex", regex}};
  return request;
}

rewards::Settings reward_settings(const train::TrainConfig& config) {
  const GrpoValues values(config);
  nlohmann::json given = nlohmann::json::object();
  for (const char* key : kRewardKeys)
    if (values.is_set(key)) given[key] = nlohmann::json(json_of(values.node(key)));
  given["reward_sandbox"] = values.flag("reward_sandbox");  // also yes and on
  auto settings = rewards::read_settings(given);
  settings.patience =
      std::chrono::milliseconds(std::llround(900 * std::min(config.ddp_timeout, 1e9)));
  return settings;
}

std::vector<std::string> reward_names(const train::TrainConfig& config) {
  const GrpoValues values(config);
  const auto node = values.node("reward_funcs");
  auto names = train::is_null(node) ? std::vector<std::string>() : train::to_words(node);
  if (const auto model = values.text("reward_model"); !model.empty()) {
    try {
      if (!hub::is_model_name(model)) checkpoint::resolve_model_config(model);
    } catch (const std::runtime_error& e) {
      rendezvous::throw_like(e, fmt::format("reward_model: {}", e.what()));
    }
    names.push_back(model);
  }
  if (names.empty())
    throw rendezvous::InputError(
        "reward_funcs: name at least one reward, such as [accuracy, format]");
  return names;
}

std::vector<double> reward_weights(const train::TrainConfig& config) {
  const auto names = reward_names(config).size();
  const GrpoValues values(config);
  if (!values.is_set("reward_weights")) return std::vector<double>(names, 1.0);
  const auto node = values.node("reward_weights");
  std::vector<double> weights;
  for (const auto& item : node.is_list() ? node.items : std::vector<YamlNode>{node})
    weights.push_back(train::to_number(item));
  if (weights.size() != names)
    throw rendezvous::InputError(
        fmt::format("reward_weights: {} weights for {} reward_funcs", weights.size(), names));
  return weights;
}

PromptOptions prompt_options(const train::TrainConfig& config) {
  const GrpoValues values(config);
  PromptOptions options;
  options.column = values.text("dataset_prompt_column");
  options.system_prompt = values.text("system_prompt");
  if (values.is_set("chat_template_kwargs"))
    options.template_extra = json_of(values.node("chat_template_kwargs"));
  options.longest = values.whole("max_prompt_length").value_or(0);
  options.skip_bad_rows = config.on_bad_row == train::BadRow::skip;
  options.needs_target = values.flag("dynamic_sampling") || values.flag("add_gt");
  for (const auto& name : reward_names(config))
    options.needs_solution = options.needs_solution || rewards::needs_solution(name);
  return options;
}

grpo::LossControl loss_control(const train::TrainConfig& config) {
  const GrpoValues values(config);
  const auto number = [&](const char* key, double other) {
    return values.number(key).value_or(other);
  };
  auto settings = grpo::loss_settings(config);
  // The log-probs of the built-in engine are always measured. They correct the loss on request.
  settings.correct_sampler =
      settings.correct_sampler &&
      (values.uses_server() || values.is_set("vllm_importance_sampling_correction"));
  const grpo::AdaptiveKl kl(number("beta", 0), values.number("target_kl"));
  const grpo::AdaptiveEntropy entropy(number("entropy_coef", 0),
                                      {.adaptive = values.flag("use_adaptive_entropy"),
                                       .target = number("entropy_target", .2),
                                       .delta = number("entropy_coef_delta", .005),
                                       .min = number("entropy_coef_min", 0),
                                       .max = number("entropy_coef_max", 1)});
  return {settings, kl, entropy};
}

}  // namespace mgpu::rl
