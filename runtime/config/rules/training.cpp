// Rules about the keys of batch size, schedule, precision, memory and LoRA.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
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

const Choices<int> kZeroStages{{"auto", kAutomaticStage}, {"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}};

const Choices<Dtype> kDtypeWords{
    {"auto", Dtype::automatic}, {"bf16", Dtype::bf16},    {"bfloat16", Dtype::bf16},
    {"fp16", Dtype::fp16},      {"float16", Dtype::fp16}, {"half", Dtype::fp16},
    {"fp32", Dtype::fp32},      {"float32", Dtype::fp32}, {"float", Dtype::fp32}};

Dtype to_dtype(const YamlNode& value) {
  YamlNode word = value;
  if (word.text.starts_with("torch.")) word.text.erase(0, 6);
  return choose(word, kDtypeWords);
}

// bf16: auto and fp16: auto have no effect.
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
  return choose(value, kDtypeWords);
}

const Choices<Recompute> kRecompute{
    {"true", Recompute::full},       {"false", Recompute::no},
    {"auto", Recompute::automatic},  {"offload", Recompute::offload},
    {"unsloth", Recompute::offload}, {"yes", Recompute::full},
    {"on", Recompute::full},         {"full", Recompute::full},
    {"block", Recompute::full},      {"none", Recompute::no},
    {"no", Recompute::no},           {"off", Recompute::no},
    {"1", Recompute::full},          {"0", Recompute::no}};

// Whether a key explicitly turns LoRA on or off, and which one.
struct LoraSwitch {
  std::optional<bool> use;
  const Setting* by = nullptr;
};

void set_switch(Reading& reading, LoraSwitch& lora, const char* key, bool use) {
  const auto* setting = reading.find(key);
  if (lora.use && *lora.use != use) return contradiction(reading, *setting, *lora.by);
  lora = {use, setting};
}

// Other methods of PEFT and LLaMA-Factory.
bool is_other_adapter(std::string_view word) {
  constexpr std::string_view kOthers[] = {"freeze", "oft",  "qoft", "llama-adapter", "ia3",
                                          "vera",   "loha", "lokr", "adalora",       "boft"};
  return std::find(std::begin(kOthers), std::end(kOthers), word) != std::end(kOthers);
}

LoraSwitch lora_switch(Reading& reading) {
  LoraSwitch lora;
  if (const auto use = reading.value("use_peft", to_flag))
    set_switch(reading, lora, "use_peft", *use);
  if (const auto* adapter = reading.find("adapter")) {
    const auto& word = adapter->value.text;
    if (word == "lora" || word == "qlora" || word.empty() || word == "none")
      set_switch(reading, lora, "adapter", word == "lora" || word == "qlora");
    else if (is_other_adapter(word))
      reading.lacks(*adapter, fmt::format("the adapter {}", word));
    else
      reading.error(*adapter, fmt::format("need lora or qlora, not {}", shown(word, 32)));
    if (word == "qlora") reading.config.load_in_4bit = true;
  }
  if (const auto* type = reading.find("finetuning_type")) {
    if (type->value.text == "lora" || type->value.text == "full")
      set_switch(reading, lora, "finetuning_type", type->value.text == "lora");
    else if (is_other_adapter(type->value.text))
      reading.lacks(*type, fmt::format("fine-tuning of the kind {}", type->value.text));
    else
      reading.error(*type, fmt::format("need lora or full, not {}", shown(type->value.text, 32)));
  }
  if (reading.value("qlora_bnb", to_flag).value_or(false)) {
    set_switch(reading, lora, "qlora_bnb", true);
    reading.config.load_in_4bit = true;
  }
  return lora;
}

// Whether the key of this name requests an adapter. A kind that is switched off does not.
bool is_of_adapter(const TrainConfig& config, const std::string& name) {
  if (name == "use_rslora") return config.use_rslora;
  if (name == "use_dora") return config.use_dora;
  if (name == "init_lora_weights" || name == "pissa_init") return config.pissa.has_value();
  return name.starts_with("lora_") || name.starts_with("adapter_") || name == "loraplus_lr_ratio";
}

// The first setting of an adapter.
const Setting* first_adapter_setting(const Reading& reading) {
  for (const auto& setting : reading.settings)
    if (setting.key->group == KeyGroup::lora && is_of_adapter(reading.config, setting.key->name))
      return &setting;
  return nullptr;
}

// All linear layers include those that lora_target_modules lists, if these are linear.
void target_linear_rule(Reading& reading) {
  const auto* linear = reading.find("lora_target_linear");
  const auto* modules = reading.find("lora_target_modules");
  if (!linear) return;
  const auto all = reading.read(*linear, to_flag);
  if (!all) return;
  if (!*all && !modules)
    reading.error(*linear, "false selects no layers; list the layers in lora_target_modules");
  if (!*all || !modules) return;
  const bool listed = std::erase_if(reading.config.lora_target_modules, [](const auto& name) {
                        return name != "lm_head" && name != "embed_tokens";
                      }) > 0;
  if (listed)
    reading.note(*modules, fmt::format("adds nothing to {}: true, which means all linear layers",
                                       linear->written));
}

// LLaMA-Factory's recipes rely on its defaults, by which an adapter is half as large as by ours. An
// adapter that is continued has values of its own.
void llama_factory_rule(Reading& reading) {
  const auto* type = reading.find("finetuning_type");
  const bool ranked = reading.find("lora_r") != nullptr;
  if (!type || type->value.text != "lora" || reading.find("lora_alpha") ||
      reading.find("adapter_path"))
    return;
  auto& config = reading.config;
  if (!ranked) config.lora_r = 8;
  config.lora_alpha = 2.0 * config.lora_r;
  reading.note(*type, fmt::format("sets {}lora_alpha: {:g}, LLaMA-Factory's default{}; set {} to "
                                  "choose another value",
                                  ranked ? "" : "lora_r: 8 and ", config.lora_alpha,
                                  ranked ? "" : "s", ranked ? "lora_alpha" : "these keys"));
}

// LLaMA-Factory's pissa_init, with the iterations in a key of its own.
void pissa_rule(Reading& reading) {
  auto& config = reading.config;
  if (const auto* iterations = reading.find("pissa_iter"); iterations && !config.pissa_init)
    reading.note(*iterations, "has no effect without pissa_init: true");
  if (config.pissa_init && !reading.find("init_lora_weights")) config.pissa = config.pissa_iter;
}

// Loss scaling needs fp16, and fp16 needs gradients that do not overflow when they are summed.
void loss_scale_rule(Reading& reading) {
  const auto& config = reading.config;
  const Setting* first = nullptr;
  for (const char* key : {"loss_scale", "initial_scale_power", "loss_scale_window",
                          "loss_scale_hysteresis", "consecutive_hysteresis", "min_loss_scale"}) {
    const auto* setting = reading.find(key);
    if (first == nullptr) first = setting;
  }
  if (config.dtype != Dtype::fp16) {
    if (first != nullptr)
      reading.note(*first, "and other keys of loss scaling have no effect without fp16: true");
    return;
  }
  if (const auto* gradients = reading.find("grad_dtype"); config.grad_dtype != "fp32")
    reading.error(*gradients, "must be fp32 beside fp16; remove it");
  const double initial = std::exp2(config.initial_scale_power);
  if (const auto* least = reading.find("min_loss_scale");
      least != nullptr && config.loss_scale == 0 && config.min_loss_scale > initial)
    reading.error(*least, fmt::format("{} is above the initial loss scale, 2^{}",
                                      config.min_loss_scale, config.initial_scale_power));
}

bool whole(double number) {
  return number == std::floor(number);
}

void warmup_rule(Reading& reading) {
  const auto* steps_setting = reading.find("warmup_steps");
  const auto* ratio_setting = reading.find("warmup_ratio");
  const double steps = steps_setting ? reading.read(*steps_setting, to_number).value_or(0) : 0;
  const double ratio = ratio_setting ? reading.read(*ratio_setting, to_number).value_or(0) : 0;
  if (steps < 0) reading.error(*steps_setting, fmt::format("need 0 or more, not {}", steps));
  if (steps > 1 && !whole(steps))
    reading.error(*steps_setting, "need a whole number of steps, or a fraction below 1");
  if (ratio < 0 || ratio >= 1)
    reading.error(*ratio_setting, "need a fraction of all steps, from 0 to below 1");
  // If one of them is 0, as in generated files, the other counts.
  if (steps > 0 && ratio > 0) contradiction(reading, *ratio_setting, *steps_setting);
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
    reading.note(*batch, micro
                             ? "means global_batch_size, over all ranks, because micro_batch_size "
                               "is set too"
                             : "means per_device_train_batch_size, of one rank");
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
      reading.error(*ratio, fmt::format("requires lr_scheduler_type: cosine, not {}",
                                        shown(config.lr_scheduler_type)));
    } else if (rate && (*rate < 0 || *rate > 1)) {
      reading.error(*ratio, "need a fraction from 0 to 1");
    } else if (rate) {
      config.lr_scheduler_type = "cosine_with_min_lr";
      config.lr_scheduler_kwargs["min_lr_rate"] = *rate;
      reading.note(*ratio, "selects lr_scheduler_type: cosine_with_min_lr");
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

  // The dtype of the computation, if a flag sets it; `dtype` then is what weights are loaded as.
  Dtype computed = Dtype::automatic;
  const Setting* by = nullptr;
  if (bf16.value_or(false)) std::tie(computed, by) = std::pair(Dtype::bf16, reading.find("bf16"));
  if (fp16.value_or(false)) std::tie(computed, by) = std::pair(Dtype::fp16, half);
  if (mixed && *mixed != Dtype::automatic && *mixed != Dtype::fp32) {
    const auto* word = reading.find("mixed_precision");
    if (by && computed != *mixed) return contradiction(reading, *word, *by);
    std::tie(computed, by) = std::pair(*mixed, word);
  }
  const bool off = mixed == Dtype::fp32 || (bf16 == false && !fp16.value_or(false));
  if (by && dtype && config.dtype == Dtype::fp32)
    reading.note(*dtype, fmt::format("has no effect beside {}: the computation is in 16 bits, the "
                                     "optimizer's master weights are fp32 anyway",
                                     by->written));
  else if (by && config.dtype != Dtype::automatic && config.dtype != computed)
    return contradiction(reading, *by, *dtype);
  if (by) config.dtype = computed;
  if (!by && off && config.dtype == Dtype::automatic && !dtype) config.dtype = Dtype::fp32;
  loss_scale_rule(reading);
}

// Megatron's word for what is recomputed. Returns the setting if it turns recomputation on.
const Setting* granularity_rule(Reading& reading) {
  const auto* setting = reading.find("recompute_granularity");
  if (!setting) return nullptr;
  const auto full = reading.read(*setting, [](const YamlNode& value) {
    return choose(value, Choices<bool>{{"full", true}, {"selective", false}});
  });
  if (full == false)
    reading.note(*setting,
                 "has no effect: attention never keeps its scores, whose recomputation "
                 "this is");
  return full.value_or(false) ? setting : nullptr;
}

// Megatron's word for which layers are recomputed. Returns whether it is all of them.
bool recomputes_uniformly(Reading& reading) {
  const auto* setting = reading.find("recompute_method");
  if (!setting) return false;
  const auto uniform = reading.read(*setting, [](const YamlNode& value) {
    return choose(value, Choices<bool>{{"uniform", true}, {"block", false}});
  });
  if (uniform == true)
    reading.note(*setting, "means recomputed_layers: all; each layer is recomputed by itself");
  else if (uniform == false && !reading.find("recomputed_layers"))
    reading.note(*setting, "has no effect without recomputed_layers");
  else if (uniform == false)
    reading.note(*setting, "the first recomputed_layers are recomputed");
  return uniform.value_or(false);
}

// `by` is the setting that turns recomputation on or off, or null.
void recomputed_layers_rule(Reading& reading, const Setting* by) {
  auto& config = reading.config;
  auto& way = config.gradient_checkpointing;
  const auto* setting = reading.find("recomputed_layers");
  const bool all = recomputes_uniformly(reading);
  if (all) {
    config.recomputed_layers = kAllLayers;
    if (!setting) setting = reading.find("recompute_method");
  }
  const bool chosen = config.recomputed_layers != kFewestLayers;
  if (chosen && !by) way = Recompute::full;
  if (!setting && (way == Recompute::full || way == Recompute::offload))
    config.recomputed_layers = kAllLayers;
  if (!setting || !by) return;
  if (way == Recompute::no && by->overrides)  // --set runs the recipe once without it
    reading.note(*setting, fmt::format("has no effect: {} turns recomputation off", by->written));
  else if (way == Recompute::no || (way == Recompute::automatic && chosen))
    contradiction(reading, *setting, *by);
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
  const auto* granularity = granularity_rule(reading);
  if (granularity && !recompute && !disable) config.gradient_checkpointing = Recompute::full;
  if (disable && !recompute)
    if (const auto no = reading.read(*disable, to_flag))
      config.gradient_checkpointing = *no ? Recompute::no : Recompute::full;
  if (reading.value("activation_offloading", to_flag).value_or(false)) {
    config.gradient_checkpointing = Recompute::offload;
    reading.note(*reading.find("activation_offloading"), "means gradient_checkpointing: offload");
  }
  const Setting* by = recompute ? recompute : disable ? disable : granularity;
  if (granularity && by != granularity && config.gradient_checkpointing != Recompute::full &&
      config.gradient_checkpointing != Recompute::offload)
    contradiction(reading, *granularity, *by);
  recomputed_layers_rule(reading, by || config.gradient_checkpointing != Recompute::offload
                                      ? by
                                      : reading.find("activation_offloading"));
  if (const auto* stage = reading.find("zero_stage")) {
    config.zero_stage =
        reading.read(*stage, [](const YamlNode& v) { return choose(v, kZeroStages); })
            .value_or(kAutomaticStage);
  }
}

void embedding_rule(Reading& reading) {
  const auto& config = reading.config;
  const auto* setting = reading.find("offload_embedding");
  if (!setting || config.offload_embedding != true || has_frozen_embedding(config)) return;
  reading.error(*setting,
                fmt::format("the embedding must stay on the GPU, because {} trains it; "
                            "remove this key",
                            config.use_peft ? "lora_modules_to_save" : "training without LoRA"));
}

void lora_rules(Reading& reading) {
  target_linear_rule(reading);
  llama_factory_rule(reading);
  pissa_rule(reading);
  const auto lora = lora_switch(reading);
  const auto* first = first_adapter_setting(reading);
  auto& config = reading.config;
  const bool implied = bits_of_base(config) > 0 && !first;
  config.use_peft = lora.use.value_or(first != nullptr || implied);
  if (implied && !lora.use) {
    const auto* by = reading.find(config.load_in_4bit   ? "load_in_4bit"
                                  : config.load_in_8bit ? "load_in_8bit"
                                                        : "fp8");
    if (!by) by = reading.find("quantization_bit");
    reading.note(*by, fmt::format("trains a LoRA adapter (lora_r: {}, lora_alpha: {:g}) on all "
                                  "linear layers, because {}-bit weights cannot be trained; set "
                                  "lora_r to choose its rank",
                                  config.lora_r, config.lora_alpha, bits_of_base(config)));
  }
  if (!first) return;
  if (!lora.use)
    reading.note(*first, "turns LoRA on; set use_peft: true to state it explicitly");
  else if (!*lora.use && lora.by->overrides)  // --set runs the recipe once without its adapter
    reading.note(*first, fmt::format("and other keys of LoRA have no effect: {} turns LoRA off",
                                     lora.by->written));
  else if (!*lora.use)
    contradiction(reading, *first, *lora.by);
}

}  // namespace mgpu::train
