#pragma once

#include "runtime/config/reading/reading.hpp"

namespace mgpu::train {

// What keys mean together. Each rule reads settings, writes config, and adds what is wrong.

// task; absent: grpo if reward_funcs or num_generations is there, else sft.
void decide_task(Reading& reading);

// What GRPO's keys mean together; before sort_out takes them away.
void grpo_rules(Reading& reading);

// Takes out of the settings what is not for this task or this program: launcher's and noted keys
// leave a note, refused ones an error, those of the other task go to config.other_task, and GRPO's
// own to config.grpo.
void sort_out(Reading& reading);

// Every setting whose key has a field.
void apply_fields(Reading& reading);

void data_rules(Reading& reading);        // dataset_name, splits, packing, roles
void batch_rules(Reading& reading);       // what batch_size means
void schedule_rules(Reading& reading);    // schedule's numbers, warm-up
void precision_rules(Reading& reading);   // dtype, bf16, fp16, mixed_precision
void memory_rules(Reading& reading);      // recomputation, ZeRO
void lora_rules(Reading& reading);        // what turns LoRA on
void evaluation_rules(Reading& reading);  // when to evaluate and to save

// Contradictions that need the whole configuration.
void cross_checks(Reading& reading);

}  // namespace mgpu::train
