// What the keys about batch, schedule, precision, memory and LoRA mean together.

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/train/optimizer_names.hpp"
#include "runtime/train/rules.hpp"
#include "runtime/train/yaml_values.hpp"

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
  const auto* steps = reading.find("warmup_steps");
  const auto* ratio = reading.find("warmup_ratio");
  const auto said_steps = steps ? reading.read(*steps, to_number) : std::nullopt;
  const auto said_ratio = ratio ? reading.read(*ratio, to_number) : std::nullopt;
  if (said_steps && *said_steps < 0) reading.error(*steps, "need 0 or more");
  if (said_steps && *said_steps > 1 &&
      *said_steps != static_cast<double>(static_cast<long>(std::min(*said_steps, 1e15))))
    reading.error(*steps, "need a whole number of steps, or a fraction below 1");
  if (said_ratio && (*said_ratio < 0 || *said_ratio >= 1))
    reading.error(*ratio, "need a fraction of all steps, from 0 to below 1");
  // One of them at 0, as generated files have it, says nothing.
  if (said_steps.value_or(0) > 0 && said_ratio.value_or(0) > 0)
    contradiction(reading, *ratio, *steps);
  config.warmup_steps = said_steps.value_or(0) > 0 ? *said_steps : said_ratio.value_or(0);
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
    const auto number = reading.read(*stage, to_whole);
    if (number && (*number < 0 || *number > 3))
      reading.error(*stage, fmt::format("need 0, 1, 2 or 3, not {}", *number));
    else if (number)
      config.zero_stage = static_cast<int>(*number);
  }
}

void lora_rules(Reading& reading) {
  auto& config = reading.config;
  const auto* said = reading.find("use_peft");
  std::optional<bool> use = said ? reading.read(*said, to_flag) : std::nullopt;
  const auto choose_use = [&](const char* key, bool lora) {
    const auto* setting = reading.find(key);
    if (use && *use != lora) return contradiction(reading, *setting, *said);
    use = lora;
    said = setting;
  };
  if (const auto* adapter = reading.find("adapter")) {
    const auto& word = adapter->value.text;
    if (word != "lora" && word != "qlora" && !word.empty() && word != "none")
      reading.error(*adapter, "need lora or qlora");
    else
      choose_use("adapter", word == "lora" || word == "qlora");
    if (word == "qlora") config.load_in_4bit = true;
  }
  if (const auto* type = reading.find("finetuning_type")) {
    if (type->value.text != "lora" && type->value.text != "full")
      reading.error(*type, "need lora or full");
    else
      choose_use("finetuning_type", type->value.text == "lora");
  }
  if (reading.value("qlora_bnb", to_flag).value_or(false)) {
    choose_use("qlora_bnb", true);
    config.load_in_4bit = true;
  }
  const Setting* first = nullptr;
  for (const auto& setting : reading.settings) {
    const auto& key = *setting.key;
    const bool of_adapter = key.name.starts_with("lora_") || key.name.starts_with("adapter_") ||
                            key.name == "use_rslora";
    if (key.group == KeyGroup::lora && of_adapter && !first) first = &setting;
  }
  config.use_peft = use.value_or(first != nullptr);
  if (first && use == false) {
    // A file that is run once without its adapter keeps its other keys.
    if (said->overrides)
      reading.note(*first, fmt::format("and other keys of LoRA have no effect: {} turns it off",
                                       said->written));
    else
      contradiction(reading, *first, *said);
  } else if (first && !use) {
    reading.note(*first, "turns LoRA on; use_peft: true says so too");
  }
}

}  // namespace mgpu::train
