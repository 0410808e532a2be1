// The keys of LoRA and of quantized weights.

#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using C = TrainConfig;

void set_quantization_bit(C& c, const YamlNode& value) {
  const auto bits = to_whole(value);
  if (bits != 4 && bits != 8) throw std::runtime_error("need 4 or 8, or leave it out");
  (bits == 4 ? c.load_in_4bit : c.load_in_8bit) = true;
}

// PiSSA's value in PEFT is pissa, or pissa_niter_N for a decomposition by N iterations.
void set_adapter_start(C& c, const YamlNode& value) {
  constexpr std::string_view kIterations = "pissa_niter_";
  const auto& word = value.text;
  c.pissa.reset();
  if (word == "true" || word == "True") return;
  if (word == "pissa") {
    c.pissa = -1;
    return;
  }
  if (!word.starts_with(kIterations)) throw std::runtime_error("need true, pissa or pissa_niter_N");
  YamlNode count = value;
  count.text.erase(0, kIterations.size());
  c.pissa = to_whole(count);
  between(0, 1000).check(static_cast<double>(*c.pissa));
}

std::string adapter_start_word(const C& c) {
  if (!c.pissa) return "true";
  return *c.pissa < 0 ? "pissa" : fmt::format("pissa_niter_{}", *c.pissa);
}

void set_targets(C& c, const YamlNode& value) {
  const auto layers = to_words(value);
  const bool all = layers.size() == 1 &&
                   (layers[0] == "all-linear" || layers[0] == "all_linear" || layers[0] == "all");
  c.lora_target_modules = all ? std::vector<std::string>{} : layers;
}

}  // namespace

std::vector<KeySpec> lora_keys() {
  return {
      {.name = "use_peft",
       .aliases = {"lora", "use_lora"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::string(c.use_peft ? "true" : "false"); }),
       .help = "trains a LoRA adapter instead of all weights",
       .initial = "true if any key of LoRA is set",
       .value = "true|false"},
      {.name = "adapter",
       .help = "lora, or qlora, which also sets load_in_4bit: true",
       .value = "lora|qlora",
       .sets = "use_peft"},
      {.name = "finetuning_type",
       .help = "lora means use_peft: true, with LLaMA-Factory's defaults lora_r: 8 and lora_alpha: "
               "twice lora_r; full means use_peft: false",
       .value = "lora|full",
       .sets = "use_peft"},
      {.name = "qlora_bnb",
       .aliases = {"qlora"},
       .help = "true means use_peft: true and load_in_4bit: true",
       .value = "true|false"},
      {.name = "lora_r",
       .aliases = {"lora_rank", "r"},
       .field = whole(&C::lora_r, between(1, 4096)),
       .help = "rank of the adapter"},
      {.name = "lora_alpha",
       .field = number(&C::lora_alpha, above(0)),
       .help = "the adapter's output is scaled by lora_alpha / lora_r"},
      {.name = "lora_dropout",
       .field = number(&C::lora_dropout, {.least = 0, .most = 1, .below = true}),
       .help = "dropout on the adapter's input"},
      {.name = "lora_target_modules",
       .aliases = {"target_modules", "lora_target"},
       .field = {.value = "LIST",
                 .set = set_targets,
                 .show = [](const C& c) { return shown_words(c.lora_target_modules); }},
       .help = "linear layers that get an adapter, such as [q_proj, v_proj]",
       .initial = "all linear layers"},
      {.name = "lora_target_linear",
       .help = "true: all linear layers have an adapter, as lora_target_modules: all-linear",
       .value = "true|false"},
      {.name = "lora_modules_to_save",
       .aliases = {"modules_to_save", "additional_target"},
       .field = words(&C::lora_modules_to_save),
       .help = "layers trained in full and saved with the adapter, such as [embed_tokens, "
               "lm_head]"},
      {.name = "use_rslora",
       .aliases = {"lora_use_rslora", "peft_use_rslora"},
       .field = flag(&C::use_rslora),
       .help = "scales the adapter's output by lora_alpha / sqrt(lora_r) instead"},
      {.name = "use_dora",
       .aliases = {"lora_use_dora", "peft_use_dora"},
       .field = flag(&C::use_dora),
       .help = "DoRA: also trains the length of each row of the adapted weights"},
      {.name = "init_lora_weights",
       .aliases = {"peft_init_lora_weights"},
       .field = {.value = "true|pissa|pissa_niter_N",
                 .set = set_adapter_start,
                 .show = [](const C& c) { return adapter_start_word(c); }},
       .help = "how an adapter begins. true: A is random and B is 0; pissa: as the largest "
               "singular values of the weights; pissa_niter_N: approximately, by N iterations"},
      {.name = "pissa_init",
       .field = flag(&C::pissa_init),
       .help = "true means init_lora_weights: pissa_niter_N with the N of pissa_iter"},
      {.name = "pissa_iter",
       .field = whole(&C::pissa_iter, at_least(-1)),
       .help = "iterations of pissa_init; -1: exact"},
      {.name = "loraplus_lr_ratio",
       .field = number(&C::loraplus_lr_ratio, above(0)),
       .help = "LoRA+: the learning rate of B, and with use_dora of the lengths, is this many "
               "times that of A"},
      {.name = "adapter_name",
       .field = text(&C::adapter_name),
       .help = "name of the adapter; any name but default is also the subfolder of its files, as "
               "in PEFT"},
      {.name = "adapter_path",
       .aliases = {"adapter_name_or_path", "lora_model_dir", "lora_path", "peft_model_id"},
       .field = text(&C::adapter_path),
       .help = "adapter to continue training: a folder, or a Hub id"},
      {.name = "load_in_4bit",
       .field = flag(&C::load_in_4bit),
       .help = "keeps the weights of the base model in 4 bits and trains an adapter"},
      {.name = "load_in_8bit",
       .field = flag(&C::load_in_8bit),
       .help = "keeps the weights of the base model in 8 bits (LLM.int8) and trains an adapter"},
      {.name = "quantization_bit",
       .field = {.value = "4|8", .set = set_quantization_bit},
       .help = "4 means load_in_4bit: true, 8 means load_in_8bit: true",
       .sets = "load_in_4bit"},
      {.name = "bnb_4bit_quant_type",
       .aliases = {"quantization_type"},
       .field = choice(&C::bnb_4bit_quant_type, {{"nf4", "nf4"}}),
       .help = "4-bit number format"},
      {.name = "use_bnb_nested_quant",
       .aliases = {"bnb_4bit_use_double_quant", "double_quantization", "bnb_4bit_nested_quant"},
       .field = flag(&C::use_bnb_nested_quant),
       .help = "also stores the scales of the 4-bit weights in 8 bits"},
  };
}
// clang-format on

}  // namespace mgpu::train
