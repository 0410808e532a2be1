// What GRPO's keys mean together. Values of the wrong type are told when the keys are sorted out;
// here they count as not said.

#include <fmt/format.h>

#include <initializer_list>

#include "runtime/config/grpo_choices.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

// What was said of a key, or `absent`.
template <class To, class Value>
Value said(Reading& reading, const char* key, To to, Value absent) {
  const auto* setting = reading.find(key);
  if (!setting) return absent;
  try {
    return to(setting->value);
  } catch (const std::runtime_error&) {
    return absent;
  }
}

template <class Value>
Value chosen(Reading& reading, const char* key, const Words<Value>& words, Value absent) {
  return said(reading, key, [&](const YamlNode& v) { return choose(v, words); }, absent);
}

// `task: gspo` is GRPO with the ratio of sequences.
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
  if (!set.empty()) reading.note(*task, fmt::format("is task grpo with {}", set));
}

void cispo_rule(Reading& reading) {
  const auto* type = reading.find("loss_type");
  const auto* bound = reading.find("epsilon_high");
  if (!bound)
    reading.error(*type, "cispo needs epsilon_high, the ratio's bound: at least 1, 5.0 is usual");
  else if (said(reading, "epsilon_high", to_number, 1.0) < 1)
    reading.error(*bound,
                  "is the ratio's bound with loss_type: cispo: need at least 1, 5.0 is "
                  "usual");
}

void vespo_rule(Reading& reading) {
  const auto* mode = reading.find("vllm_importance_sampling_mode");
  if (!mode || !said(reading, "vllm_importance_sampling_correction", to_flag, true)) return;
  using enum SamplerCorrection;
  const auto correction =
      chosen(reading, "vllm_importance_sampling_mode", sampler_corrections(), token_mask);
  if (correction == sequence_mask || correction == sequence_truncate)
    reading.error(*mode, "loss_type: vespo needs token_mask or token_truncate");
}

// Losses that are defined for the ratio of tokens or of sequences, and get the other.
void level_rule(Reading& reading, LossType type) {
  const auto* task = reading.find("task");
  const bool gspo = task && task->value.text == "gspo";
  const auto level = chosen(reading, "importance_sampling_level", importance_levels(),
                            gspo ? ImportanceLevel::sequence : ImportanceLevel::token);
  const auto* by = reading.find("importance_sampling_level");
  if (!by) by = reading.find("loss_type");
  if (!by) return;
  const bool sequence = level == ImportanceLevel::sequence;
  using enum LossType;
  if (type == luspo && !sequence)
    reading.note(*by, "warning: loss_type: luspo is meant for importance_sampling_level: sequence");
  if (type == vespo && sequence)
    reading.note(*by,
                 "warning: loss_type: vespo makes sequences' ratios itself and is meant for "
                 "importance_sampling_level: token");
  if (sequence && (type == bnpo || type == dr_grpo || type == dapo || type == cispo))
    reading.note(*by, fmt::format("warning: with loss_type: {} the ratio of a sequence counts once "
                                  "a token, so long completions weigh more; GSPO is loss_type: "
                                  "grpo",
                                  word_for(type, loss_types())));
}

void kl_rule(Reading& reading) {
  if (said(reading, "beta", to_number, 0.0) > 0) return;
  const auto needs_beta = [&](const Setting* setting, const char* what) {
    if (setting) reading.error(*setting, fmt::format("needs beta above 0: {}", what));
  };
  needs_beta(reading.find("target_kl"), "without it there is no divergence to hold");
  if (said(reading, "sync_ref_model", to_flag, false))
    needs_beta(reading.find("sync_ref_model"), "without it there is no reference to move");
}

bool means_server(Reading& reading) {
  return chosen(reading, "vllm_mode", vllm_modes(), VllmMode::colocate) == VllmMode::server;
}

bool asks_server(Reading& reading) {
  return said(reading, "use_vllm", to_flag, false) && means_server(reading);
}

void note_each(Reading& reading, std::initializer_list<const char*> keys, const char* text) {
  for (const char* key : keys)
    if (const auto* setting = reading.find(key)) reading.note(*setting, text);
}

void server_rule(Reading& reading) {
  if (reading.find("vllm_server_base_url"))
    note_each(reading, {"vllm_server_host", "vllm_server_port"},
              "has no effect: vllm_server_base_url says where the server is");
  note_each(reading,
            {"vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_max_model_length",
             "vllm_enable_sleep_mode", "vllm_model_impl", "vllm_device", "vllm_dtype"},
            "has no effect: it is for whoever starts the server");
  note_each(reading, {"vllm_sync_interval"},
            "has no effect: the server gets the weights whenever they have changed");
  note_each(reading, {"vllm_lora_sync"},
            "has no effect: an adapter alone is sent whenever one is trained");
}

// Keys of other trainers that need nothing here; those that switch something off say nothing.
void unheeded_rule(Reading& reading) {
  const auto unless_off = [&](std::initializer_list<const char*> keys, const char* text) {
    for (const char* key : keys)
      if (const auto* setting = reading.find(key);
          setting != nullptr && !is_null(setting->value) && setting->value.text != "false")
        reading.note(*setting, text);
  };
  unless_off({"async_prefetch"}, "has no effect: a step learns from what its own weights made");
  if (const auto* gathers = reading.find("ds3_gather_for_generation");
      gathers != nullptr && gathers->value.text == "false")
    reading.note(*gathers, "has no effect: weights that are spread are gathered to generate");
  unless_off({"cast_lm_head_to_fp32"},
             "has no effect: scores are computed in fp32 of logits in the model's dtype");
  unless_off({"cache_implementation", "use_transformers_continuous_batching",
              "transformers_continuous_batching_config"},
             "has no effect: the generator has one cache, in pages, and always batches so");
  unless_off({"log_unique_prompts", "log_multimodal", "log_completions_hub_repo"},
             "has no effect: completions are logged to a file of the output folder, all of them");
}

// Our own engine generates, or a server that somebody runs; keys of the other have no effect.
void engine_rule(Reading& reading) {
  if (asks_server(reading)) return server_rule(reading);
  if (means_server(reading))
    note_each(reading, {"vllm_mode"},
              "has no effect without use_vllm: true; our own engine generates");
  else if (said(reading, "use_vllm", to_flag, false))
    note_each(reading, {"use_vllm"},
              "our own engine generates, on the policy's own weights; no server is needed");
  note_each(reading,
            {"vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout",
             "vllm_group_port"},
            "has no effect: our own engine generates; a server needs vllm_mode: server");
  note_each(reading,
            {"vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_max_model_length",
             "vllm_enable_sleep_mode", "vllm_model_impl", "vllm_sync_interval", "vllm_lora_sync",
             "vllm_device", "vllm_dtype"},
            "has no effect: our own engine generates, with the memory that the plan gives it");
  note_each(reading,
            {"vllm_importance_sampling_correction", "vllm_importance_sampling_mode",
             "vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"},
            "changes what is told as sampling/importance_sampling_ratio at most: our own engine "
            "generates, and nothing is corrected");
}

void roles_rule(Reading& reading) {
  const auto* role = reading.find("reference_gpu");
  if (role && said(reading, "beta", to_number, 0.0) <= 0)
    reading.note(*role, "has no effect: beta is 0, so there is no reference");
}

struct Absent {
  const char* key;
  const char* what;
};

// What would change the result, and is not carried out.
void absent_rule(Reading& reading) {
  constexpr Absent kFlags[] = {
      {"beam_search", "completions are sampled; leave it out"},
  };
  constexpr Absent kOthers[] = {
      {"replay_buffer_size", "completions are learnt from when they are new; leave it out"},
      {"vllm_structured_outputs_regex", "completions are free; leave it out"},
      {"reward_type", "name rewards in reward_funcs, such as rule or ranking"},
      {"max_tool_calling_iterations", "completions call no tools; leave it out"},
  };
  const auto refuse = [&](const Absent& absent) {
    reading.error(*reading.find(absent.key), fmt::format("is not supported: {}", absent.what));
  };
  for (const auto& absent : kFlags)
    if (reading.find(absent.key) && said(reading, absent.key, to_flag, false)) refuse(absent);
  for (const auto& absent : kOthers) {
    const auto* setting = reading.find(absent.key);
    // A server can hold completions to a pattern, our own engine cannot.
    if (asks_server(reading) && setting && setting->key->name == "vllm_structured_outputs_regex")
      continue;
    if (setting && !is_null(setting->value) && setting->value.text != "0") refuse(absent);
  }
  const auto* sums = reading.find("gradient_aggregation");
  if (sums && sums->value.text != "weighted")
    reading.error(*sums,
                  "task grpo adds up what all ranks learn; leave it out, or see loss_type for "
                  "what the sum is divided by");
}

void entropy_rule(Reading& reading) {
  const auto least = said(reading, "entropy_coef_min", to_number, 0.0);
  const auto most = said(reading, "entropy_coef_max", to_number, 1.0);
  const auto* setting = reading.find("entropy_coef_min");
  if (least > most && !setting) setting = reading.find("entropy_coef_max");
  if (least > most) reading.error(*setting, "entropy_coef_min is above entropy_coef_max");
}

}  // namespace

void grpo_rules(Reading& reading) {
  task_rule(reading);
  const auto* task = reading.find("task");
  const bool gspo = task && task->value.text == "gspo";
  const auto type =
      chosen(reading, "loss_type", loss_types(), gspo ? LossType::grpo : LossType::dapo);
  if (type == LossType::cispo) cispo_rule(reading);
  if (type == LossType::vespo) vespo_rule(reading);
  level_rule(reading, type);
  kl_rule(reading);
  unheeded_rule(reading);
  engine_rule(reading);
  roles_rule(reading);
  absent_rule(reading);
  entropy_rule(reading);
  if (const auto* size = reading.find("generation_batch_size"))
    if (const auto* steps = reading.find("steps_per_generation"))
      reading.error(*steps, fmt::format("speaks of the same as {} ({}); keep one", size->written,
                                        size->where));
}

}  // namespace mgpu::train
