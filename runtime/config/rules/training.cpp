// What the keys about batch, schedule, precision, memory and LoRA mean together.

#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/optimizer_names.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

std::int64_t to_count(const YamlNode& value) {
  const auto count = to_whole(value);
  between(1, 1e9).check(static_cast<double>(count));
  return count;
}

void contradiction(Reading& reading, const Setting& one, const Setting& other) {
  reading.error(one, fmt::format("contradicts {} ({}); keep one", other.written, other.where));
}

const Words<int> kZeroStages{{"auto", kAutomaticStage}, {"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}};

const Words<Dtype> kDtypes{
    {"auto", Dtype::automatic}, {"bf16", Dtype::bf16},    {"bfloat16", Dtype::bf16},
    {"fp16", Dtype::fp16},      {"float16", Dtype::fp16}, {"half", Dtype::fp16},
    {"fp32", Dtype::fp32},      {"float32", Dtype::fp32}, {"float", Dtype::fp32}};

Dtype to_dtype(const YamlNode& value) {
  YamlNode word = value;
  if (word.text.starts_with("torch.")) word.text.erase(0, 6);
  return choose(word, kDtypes);
}

// bf16: auto and fp16: auto leave it open.
std::optional<bool> flag_or_auto(Reading& reading, const char* key) {
  const auto* setting = reading.find(key);
  if (!setting || setting->value.text == "auto") return {};
  return reading.read(*setting, to_flag);
}

Dtype to_mixed(const YamlNode& value) {
  for (const char* no : {"no", "false", "False", "off"})
    if (value.text == no) return Dtype::fp32;
  for (const char* yes : {"true", "True", "yes", "on"})
    if (value.text == yes) return Dtype::automatic;
  return choose(value, kDtypes);
}

const Words<Recompute> kRecompute{{"true", Recompute::full},       {"false", Recompute::no},
                                  {"auto", Recompute::automatic},  {"offload", Recompute::offload},
                                  {"unsloth", Recompute::offload}, {"yes", Recompute::full},
                                  {"on", Recompute::full},         {"full", Recompute::full},
                                  {"block", Recompute::full},      {"none", Recompute::no},
                                  {"no", Recompute::no},           {"off", Recompute::no},
                                  {"1", Recompute::full},          {"0", Recompute::no}};

// Whether LoRA is asked for or ruled out in so many words, and by which setting.
struct SaidUse {
  std::optional<bool> use;
  const Setting* by = nullptr;
};

void say_use(Reading& reading, SaidUse& said, const char* key, bool use) {
  const auto* setting = reading.find(key);
  if (said.use && *said.use != use) return contradiction(reading, *setting, *said.by);
  said = {use, setting};
}

SaidUse said_use(Reading& reading) {
  SaidUse said;
  if (const auto use = reading.value("use_peft", to_flag)) say_use(reading, said, "use_peft", *use);
  if (const auto* adapter = reading.find("adapter")) {
    const auto& word = adapter->value.text;
    if (word == "lora" || word == "qlora" || word.empty() || word == "none")
      say_use(reading, said, "adapter", word == "lora" || word == "qlora");
    else
      reading.error(*adapter, "need lora or qlora");
    if (word == "qlora") reading.config.load_in_4bit = true;
  }
  if (const auto* type = reading.find("finetuning_type")) {
    if (type->value.text == "lora" || type->value.text == "full")
      say_use(reading, said, "finetuning_type", type->value.text == "lora");
    else
      reading.error(*type, "need lora or full");
  }
  if (reading.value("qlora_bnb", to_flag).value_or(false)) {
    say_use(reading, said, "qlora_bnb", true);
    reading.config.load_in_4bit = true;
  }
  return said;
}

// The first setting that is about an adapter.
const Setting* first_of_adapter(const Reading& reading) {
  for (const auto& setting : reading.settings) {
    const auto& name = setting.key->name;
    const bool of_adapter =
        name.starts_with("lora_") || name.starts_with("adapter_") || name == "use_rslora";
    if (setting.key->group == KeyGroup::lora && of_adapter) return &setting;
  }
  return nullptr;
}

bool whole(double number) {
  return number == std::floor(number);
}

void warmup_rule(Reading& reading) {
  const auto* said_steps = reading.find("warmup_steps");
  const auto* said_ratio = reading.find("warmup_ratio");
  const double steps = said_steps ? reading.read(*said_steps, to_number).value_or(0) : 0;
  const double ratio = said_ratio ? reading.read(*said_ratio, to_number).value_or(0) : 0;
  if (steps < 0) reading.error(*said_steps, "need 0 or more");
  if (steps > 1 && !whole(steps))
    reading.error(*said_steps, "need a whole number of steps, or a fraction below 1");
  if (ratio < 0 || ratio >= 1)
    reading.error(*said_ratio, "need a fraction of all steps, from 0 to below 1");
  // One of them at 0, as generated files have it, says nothing.
  if (steps > 0 && ratio > 0) contradiction(reading, *said_ratio, *said_steps);
  reading.config.warmup_steps = steps > 0 ? steps : ratio;
}

}  // namespace

void batch_rules(Reading& reading) {
  auto& config = reading.config;
  const auto* batch = reading.find("batch_size");
  const auto* micro = reading.find("micro_batch_size");
  const auto* device = reading.find("per_device_train_batch_size");
  const auto* global = reading.find("global_batch_size");
  if (micro && device) contradiction(reading, *micro, *device);
  if (batch && device) contradiction(reading, *batch, *device);
  if (batch && micro && global) contradiction(reading, *batch, *global);

  if (const auto* each = device ? device : micro ? micro : batch)
    config.per_device_train_batch_size =
        reading.read(*each, to_count).value_or(config.per_device_train_batch_size);
  if (const auto* all = global ? global : batch && micro ? batch : nullptr)
    config.global_batch_size = reading.read(*all, to_count).value_or(0);
  if (batch)
    reading.note(*batch, micro ? "is global_batch_size, of all ranks together, as micro_batch_size "
                                 "is said too"
                               : "is per_device_train_batch_size, of one rank");
  if (const auto steps = reading.value("gradient_accumulation_steps", to_count)) {
    config.gradient_accumulation_steps = *steps;
    config.gradient_accumulation_given = true;
  }
}

void schedule_rules(Reading& reading) {
  auto& config = reading.config;
  if (const auto* ratio = reading.find("cosine_min_lr_ratio")) {
    const auto rate = reading.read(*ratio, to_number);
    if (config.lr_scheduler_type != "cosine" && reading.find("lr_scheduler_type")) {
      reading.error(*ratio, fmt::format("needs lr_scheduler_type: cosine, not {}",
                                        shown(config.lr_scheduler_type)));
    } else if (rate && (*rate < 0 || *rate > 1)) {
      reading.error(*ratio, "need a fraction from 0 to 1");
    } else if (rate) {
      config.lr_scheduler_type = "cosine_with_min_lr";
      config.lr_scheduler_kwargs["min_lr_rate"] = *rate;
      reading.note(*ratio, "makes the schedule cosine_with_min_lr");
    }
  }
  if (const auto* numbers = reading.find("lr_scheduler_kwargs"))
    reading.read(*numbers, [&](const YamlNode& value) {
      set_scheduler_numbers(config, value);
      return 0;
    });
  warmup_rule(reading);
}

void precision_rules(Reading& reading) {
  auto& config = reading.config;
  const auto bf16 = flag_or_auto(reading, "bf16");
  const auto fp16 = flag_or_auto(reading, "fp16");
  const auto mixed = reading.value("mixed_precision", to_mixed);
  const auto* dtype = reading.find("dtype");
  config.dtype = reading.value("dtype", to_dtype).value_or(Dtype::automatic);
  const auto* half = reading.find("fp16");
  if (bf16.value_or(false) && fp16.value_or(false))
    return contradiction(reading, *half, *reading.find("bf16"));

  // What is to be computed in, where a flag says so; `dtype` then is what weights are loaded as.
  Dtype asked = Dtype::automatic;
  const Setting* by = nullptr;
  if (bf16.value_or(false)) std::tie(asked, by) = std::pair(Dtype::bf16, reading.find("bf16"));
  if (fp16.value_or(false)) std::tie(asked, by) = std::pair(Dtype::fp16, half);
  if (mixed && *mixed != Dtype::automatic && *mixed != Dtype::fp32) {
    const auto* word = reading.find("mixed_precision");
    if (by && asked != *mixed) return contradiction(reading, *word, *by);
    std::tie(asked, by) = std::pair(*mixed, word);
  }
  const bool off = mixed == Dtype::fp32 || (bf16 == false && !fp16.value_or(false));
  if (by && dtype && config.dtype == Dtype::fp32)
    reading.note(*dtype, "computes in 16 bits as asked; fp32 master weights are the optimizer's");
  else if (by && config.dtype != Dtype::automatic && config.dtype != asked)
    return contradiction(reading, *by, *dtype);
  if (by) config.dtype = asked;
  if (!by && off && config.dtype == Dtype::automatic && !dtype) config.dtype = Dtype::fp32;
}

void memory_rules(Reading& reading) {
  auto& config = reading.config;
  const auto* recompute = reading.find("gradient_checkpointing");
  const auto* disable = reading.find("disable_gradient_checkpointing");
  if (recompute && disable) contradiction(reading, *disable, *recompute);
  if (recompute)
    config.gradient_checkpointing =
        reading.read(*recompute, [](const YamlNode& v) { return choose(v, kRecompute); })
            .value_or(Recompute::automatic);
  if (disable && !recompute)
    if (const auto no = reading.read(*disable, to_flag))
      config.gradient_checkpointing = *no ? Recompute::no : Recompute::full;
  if (reading.value("activation_offloading", to_flag).value_or(false)) {
    config.gradient_checkpointing = Recompute::offload;
    reading.note(*reading.find("activation_offloading"), "is gradient_checkpointing: offload");
  }
  if (const auto* stage = reading.find("zero_stage")) {
    config.zero_stage =
        reading.read(*stage, [](const YamlNode& v) { return choose(v, kZeroStages); })
            .value_or(kAutomaticStage);
  }
}

void lora_rules(Reading& reading) {
  const auto said = said_use(reading);
  const auto* first = first_of_adapter(reading);
  reading.config.use_peft = said.use.value_or(first != nullptr);
  if (!first) return;
  if (!said.use)
    reading.note(*first, "turns LoRA on; use_peft: true says so too");
  else if (!*said.use && said.by->overrides)  // a file that is run once without its adapter
    reading.note(*first, fmt::format("and other keys of LoRA have no effect: {} turns it off",
                                     said.by->written));
  else if (!*said.use)
    contradiction(reading, *first, *said.by);
}

}  // namespace mgpu::train
