// Rules about the keys of GRPO. dispatch_settings reports values of the wrong type; the rules here
// treat such keys as absent.

#include <fmt/format.h>

#include <initializer_list>

#include "runtime/config/grpo_choices.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

template <class Value>
Value choice_or(Reading& reading, const char* key, const Choices<Value>& words, Value absent) {
  return value_or(reading, key, [&](const YamlNode& v) { return choose(v, words); }, absent);
}

// `task: gspo` is GRPO with a ratio per sequence.
void task_rule(Reading& reading) {
  const auto* task = reading.find("task");
  if (!task || task->value.text != "gspo") return;
  std::string set;
  for (const auto& [key, value] :
       {std::pair("importance_sampling_level", "sequence"), std::pair("loss_type", "grpo")}) {
    if (reading.find(key)) continue;
    reading.config.grpo[key] = value;
    set += fmt::format("{}{}: {}", set.empty() ? "" : ", ", key, value);
  }
  if (!set.empty()) reading.note(*task, fmt::format("means task: grpo with {}", set));
}

void cispo_rule(Reading& reading) {
  const auto* type = reading.find("loss_type");
  const auto* bound = reading.find("epsilon_high");
  if (!bound)
    reading.error(
        *type,
        "cispo requires epsilon_high, the upper bound of the ratio: at least 1, usually 5.0");
  else if (value_or(reading, "epsilon_high", to_number, 1.0) < 1)
    reading.error(*bound,
                  "is the upper bound of the ratio with loss_type: cispo: need at least 1, "
                  "usually 5.0");
}

void vespo_rule(Reading& reading) {
  const auto* mode = reading.find("vllm_importance_sampling_mode");
  if (!mode || !value_or(reading, "vllm_importance_sampling_correction", to_flag, true)) return;
  using enum SamplerCorrection;
  const auto correction =
      choice_or(reading, "vllm_importance_sampling_mode", sampler_corrections(), token_mask);
  if (correction == sequence_mask || correction == sequence_truncate)
    reading.error(*mode, "loss_type: vespo requires token_mask or token_truncate");
}

// Warns about losses that are defined for a ratio per token or per sequence and get the other one.
void level_rule(Reading& reading, LossType type) {
  const auto* task = reading.find("task");
  const bool gspo = task && task->value.text == "gspo";
  const auto level = choice_or(reading, "importance_sampling_level", importance_levels(),
                               gspo ? ImportanceLevel::sequence : ImportanceLevel::token);
  const auto* by = reading.find("importance_sampling_level");
  if (!by) by = reading.find("loss_type");
  if (!by) return;
  const bool sequence = level == ImportanceLevel::sequence;
  using enum LossType;
  if (type == luspo && !sequence)
    reading.note(*by,
                 "warning: loss_type: luspo is designed for importance_sampling_level: sequence");
  if (type == vespo && sequence)
    reading.note(
        *by,
        "warning: loss_type: vespo computes ratios per sequence itself and is designed for "
        "importance_sampling_level: token");
  if (sequence && (type == bnpo || type == dr_grpo || type == dapo || type == cispo))
    reading.note(*by, fmt::format("warning: with loss_type: {} the ratio of a sequence counts once "
                                  "per token, so long completions weigh more; GSPO uses "
                                  "loss_type: grpo",
                                  choice_name(type, loss_types())));
}

// verl's switch, which stands beside the number of tokens.
void token_budget_rule(Reading& reading) {
  const auto* dynamic = reading.find("use_dynamic_bsz");
  const auto tokens = value_or(reading, "micro_batch_tokens", to_whole, std::int64_t{0});
  if (!dynamic) return;
  const bool on = value_or(reading, "use_dynamic_bsz", to_flag, tokens > 0);
  if (on && tokens <= 0)
    reading.error(*dynamic, "requires micro_batch_tokens, the most tokens of a micro-batch");
  if (on || tokens <= 0) return;
  const auto* budget = reading.find("micro_batch_tokens");
  if (budget->written == "micro_batch_tokens")
    reading.error(*dynamic, fmt::format("contradicts {}; keep one", budget->written));
  else  // verl's recipes have both
    reading.note(*budget, fmt::format("has no effect: {} is false", dynamic->written));
}

void kl_rule(Reading& reading) {
  if (value_or(reading, "beta", to_number, 0.0) > 0) return;
  const auto needs_beta = [&](const Setting* setting, const char* what) {
    if (setting) reading.error(*setting, fmt::format("requires beta above 0: {}", what));
  };
  needs_beta(reading.find("target_kl"), "without it no divergence is computed");
  if (value_or(reading, "sync_ref_model", to_flag, false))
    needs_beta(reading.find("sync_ref_model"), "without it there is no reference model");
}

// The first key that has the address of a server, or null.
const Setting* server_address_key(Reading& reading) {
  for (const char* key : {"vllm_server_base_url", "vllm_server_host", "vllm_server_port"})
    if (const auto* setting = reading.find(key); setting != nullptr && !is_null(setting->value))
      return setting;
  return nullptr;
}

bool is_server_mode(Reading& reading) {
  return choice_or(reading, "vllm_mode", vllm_modes(), VllmMode::colocate) == VllmMode::server;
}

void note_each(Reading& reading, std::initializer_list<const char*> keys, const char* text) {
  for (const char* key : keys)
    if (const auto* setting = reading.find(key)) reading.note(*setting, text);
}

void server_rule(Reading& reading) {
  if (!reading.find("vllm_mode")) {
    reading.config.grpo["vllm_mode"] = "server";
    reading.note(*server_address_key(reading),
                 "means vllm_mode: server: the server at this address generates; set vllm_mode: "
                 "colocate to generate with the built-in engine");
  }
  if (reading.find("vllm_server_base_url"))
    note_each(reading, {"vllm_server_host", "vllm_server_port"},
              "has no effect: vllm_server_base_url is the address of the server");
  note_each(reading,
            {"vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_max_model_length",
             "vllm_enable_sleep_mode", "vllm_model_impl", "vllm_device", "vllm_dtype"},
            "has no effect: set it when you start the server");
  note_each(reading, {"vllm_sync_interval"},
            "has no effect: weights are sent to the server whenever they have changed");
  note_each(reading, {"vllm_lora_sync"},
            "has no effect: if an adapter is trained, only the adapter is sent");
}

// Notes for keys of other trainers without effect; keys that switch something off need no note.
void ignored_rule(Reading& reading) {
  const auto unless_off = [&](std::initializer_list<const char*> keys, const char* text) {
    for (const char* key : keys)
      if (const auto* setting = reading.find(key);
          setting != nullptr && !is_null(setting->value) && setting->value.text != "false")
        reading.note(*setting, text);
  };
  unless_off({"async_prefetch"}, "has no effect: a step trains on completions of its own weights");
  if (const auto* gathers = reading.find("ds3_gather_for_generation");
      gathers != nullptr && gathers->value.text == "false")
    reading.note(*gathers, "has no effect: sharded weights are always gathered for generation");
  unless_off({"cache_implementation", "use_transformers_continuous_batching",
              "transformers_continuous_batching_config"},
             "has no effect: the engine always uses a paged KV cache and continuous batching");
  unless_off({"log_unique_prompts", "log_multimodal", "log_completions_hub_repo"},
             "has no effect: all completions are logged to files in output_dir");
}

// Completions of the built-in engine are corrected only on request: it computes with the weights of
// the policy, and the correction costs a forward pass per completion.
void own_correction_rule(Reading& reading) {
  constexpr const char* kKey = "vllm_importance_sampling_correction";
  if (value_or(reading, kKey, to_flag, false))
    return reading.note(
        *reading.find(kKey),
        "also corrects for the rounding of the built-in engine, and costs a forward "
        "pass per completion");
  note_each(reading,
            {"vllm_importance_sampling_mode", "vllm_importance_sampling_clip_max",
             "vllm_importance_sampling_clip_min"},
            "has no effect but on the metric sampling/importance_sampling_ratio: the built-in "
            "engine generates, and nothing is corrected; set vllm_importance_sampling_correction: "
            "true to correct for its rounding");
}

// The built-in engine or an external server generates; keys of the other one have no effect.
void engine_rule(Reading& reading) {
  if (uses_server(reading)) return server_rule(reading);
  const bool use_vllm = value_or(reading, "use_vllm", to_flag, false);
  if (is_server_mode(reading))
    note_each(reading, {"vllm_mode"},
              "has no effect without use_vllm: true; the built-in engine generates");
  else if (use_vllm)
    note_each(reading, {"use_vllm"},
              "the built-in engine generates, with the weights of the policy; no server is needed");
  const char* change = !use_vllm                   ? "use_vllm: true"
                       : reading.find("vllm_mode") ? "vllm_mode: server"
                                                   : "vllm_server_host";
  const auto unused =
      fmt::format("has no effect: the built-in engine generates; set {} to use a server", change);
  note_each(reading,
            {"vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout",
             "vllm_group_port"},
            unused.c_str());
  note_each(reading,
            {"vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_max_model_length",
             "vllm_enable_sleep_mode", "vllm_model_impl", "vllm_sync_interval", "vllm_lora_sync",
             "vllm_device", "vllm_dtype"},
            "has no effect: the built-in engine generates, with the memory that the plan gives it");
  own_correction_rule(reading);
}

void gpu_roles_rule(Reading& reading) {
  const auto* role = reading.find("reference_gpu");
  if (role && value_or(reading, "beta", to_number, 0.0) <= 0)
    reading.note(*role, "has no effect: beta is 0, so there is no reference model");
}

struct Unsupported {
  const char* key;
  const char* what;
};

// Refuses keys that would change the result and are not supported.
void unsupported_rule(Reading& reading) {
  constexpr Unsupported kOthers[] = {
      {"replay_buffer_size",
       "completions are used for training only when they are new; leave it out"},
      {"vllm_structured_outputs_regex",
       "the built-in engine restricts completions to the items of info_file only; leave it out, or "
       "use a vLLM server"},
      {"max_tool_calling_iterations", "completions call no tools; leave it out"},
  };
  const auto refuse = [&](const Unsupported& entry) {
    reading.error(*reading.find(entry.key), fmt::format("is not supported: {}", entry.what));
  };
  for (const auto& entry : kOthers) {
    const auto* setting = reading.find(entry.key);
    // A server can restrict completions to a pattern, the built-in engine cannot.
    if (uses_server(reading) && setting && setting->key->name == "vllm_structured_outputs_regex")
      continue;
    if (setting && !is_null(setting->value) && setting->value.text != "0") refuse(entry);
  }
  const auto* sums = reading.find("gradient_aggregation");
  if (sums && sums->value.text != "weighted")
    reading.error(*sums,
                  "task grpo sums the gradients of all ranks; leave it out, and see loss_type for "
                  "the divisor of the sum");
}

void entropy_rule(Reading& reading) {
  const auto least = value_or(reading, "entropy_coef_min", to_number, 0.0);
  const auto most = value_or(reading, "entropy_coef_max", to_number, 1.0);
  const auto* setting = reading.find("entropy_coef_min");
  if (least > most && !setting) setting = reading.find("entropy_coef_max");
  if (least > most)
    reading.error(*setting, "entropy_coef_min is above entropy_coef_max; swap them");
}

}  // namespace

bool uses_server(Reading& reading) {
  if (!value_or(reading, "use_vllm", to_flag, false)) return false;
  return reading.find("vllm_mode") ? is_server_mode(reading)
                                   : server_address_key(reading) != nullptr;
}

void grpo_rules(Reading& reading) {
  task_rule(reading);
  const auto* task = reading.find("task");
  const bool gspo = task && task->value.text == "gspo";
  const auto type =
      choice_or(reading, "loss_type", loss_types(), gspo ? LossType::grpo : LossType::dapo);
  if (type == LossType::cispo) cispo_rule(reading);
  if (type == LossType::vespo) vespo_rule(reading);
  level_rule(reading, type);
  token_budget_rule(reading);
  kl_rule(reading);
  ignored_rule(reading);
  engine_rule(reading);
  gpu_roles_rule(reading);
  unsupported_rule(reading);
  entropy_rule(reading);
  if (const auto* size = reading.find("generation_batch_size"))
    if (const auto* steps = reading.find("steps_per_generation"))
      reading.error(*steps,
                    fmt::format("means the same as {} ({}); keep one", size->written, size->where));
}

}  // namespace mgpu::train
