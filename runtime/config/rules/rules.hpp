#pragma once

#include <stdexcept>

#include "runtime/config/reading/reading.hpp"

namespace mgpu::train {

// Rules about several keys together. Each rule reads settings, writes the configuration and adds
// errors and notes.

// Sets the task. Without the key it is grpo if reward_funcs, reward_model or num_generations is
// set, else sft.
void decide_task(Reading& reading);

// Finds what a recipe is about and this program lacks: methods, kinds of models, plugins. Requires:
// called before dispatch_settings.
void method_rules(Reading& reading);

// Gives MiniOneRec's keys that have another meaning elsewhere the meaning of MiniOneRec, in a
// recipe that has its reward_type or info_file. Requires: called before merge_repetitions.
void recommendation_names(Reading& reading);

// Replaces MiniOneRec's keys for reward functions and losses by ours. Requires: called before
// grpo_rules, which checks those.
void recommendation_rules(Reading& reading);

// Whether a vLLM server generates: by vllm_mode, or by the address of a server. Requires: called
// before dispatch_settings.
bool uses_server(Reading& reading);

// Checks the keys of GRPO. Requires: called before dispatch_settings, which removes them.
void grpo_rules(Reading& reading);

// Removes from the settings what the following rules do not read. Launcher keys and ignored keys
// leave a note and refused keys an error; keys of the other task go to config.other_task and those
// of GRPO to config.grpo.
void dispatch_settings(Reading& reading);

// Applies every setting whose key has a field.
void apply_fields(Reading& reading);

void template_rules(Reading& reading);    // the chat template
void data_rules(Reading& reading);        // dataset_name, splits, packing, roles
void mixture_rules(Reading& reading);     // mixtures and streams, when the datasets are known
void batch_rules(Reading& reading);       // per device and global batch size
void schedule_rules(Reading& reading);    // parameters of the schedule, warm-up
void precision_rules(Reading& reading);   // dtype, bf16, fp16, mixed_precision
void memory_rules(Reading& reading);      // recomputation, ZeRO
void lora_rules(Reading& reading);        // what turns LoRA on
void embedding_rule(Reading& reading);    // where the embedding is; called after lora_rules
void fp8_rules(Reading& reading);         // what is in fp8; called after lora_rules
void evaluation_rules(Reading& reading);  // when to evaluate and to save

// Finds contradictions that need the whole configuration.
void cross_checks(Reading& reading);

// The value of a key, or `absent`. A value of the wrong type, which dispatch_settings reports,
// counts as absent.
template <class To, class Value>
Value value_or(Reading& reading, const char* key, To to, Value absent) {
  const auto* setting = reading.find(key);
  if (!setting) return absent;
  try {
    return to(setting->value);
  } catch (const std::runtime_error&) {
    return absent;
  }
}

}  // namespace mgpu::train
