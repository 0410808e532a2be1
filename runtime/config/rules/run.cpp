// Rules about evaluation and checkpoints, and checks of the whole configuration.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"
#include "runtime/model/presets.hpp"

namespace mgpu::train {
namespace {

// The smallest vocabularies: the special tokens, and all bytes or one character.
constexpr std::int64_t kLeastBpe = 3 + 256, kLeastCharacters = 4 + 1;

// N per epoch is a fraction of all steps; 1 is the end of the epoch.
void per_epoch_rule(Reading& reading, const char* key, const char* steps_key,
                    double TrainConfig::* steps, When TrainConfig::* strategy) {
  const auto* setting = reading.find(key);
  if (!setting) return;
  auto& config = reading.config;
  const auto count = reading.read(*setting, to_number);
  if (!count) return;
  if (*count == 0) return reading.note(*setting, "has no effect: 0 is as without the key");
  const auto* other = reading.find(steps_key);
  if (*count < 0)
    reading.error(*setting, "need a number of at least 0");
  else if (other)
    reading.error(*setting,
                  fmt::format("means the same as {} ({}); keep one", other->written, other->where));
  else if (*count == 1)
    config.*strategy = When::epoch;
  else if (config.max_steps > 0)
    reading.error(*setting, fmt::format("cannot be combined with max_steps; use {}", steps_key));
  else if (const double part = 1 / (*count * config.num_train_epochs); part >= 1)
    reading.error(*setting, "is less than once in the whole run; use a larger number");
  else
    config.*steps = part;
}

bool has_evaluation_data(const TrainConfig& config) {
  return !config.eval_dataset.empty() || config.val_set_size > 0;
}

void check_steps(Reading& reading, const char* key, double steps) {
  const auto* setting = reading.find(key);
  if (setting && steps > 1 && steps != std::floor(steps))
    reading.error(*setting, "need a whole number of steps, or a fraction below 1");
}

// Adds an error about the first of the keys that is set, or about the file if none is.
void error_at_first(Reading& reading, std::initializer_list<const char*> keys,
                    const std::string& what) {
  for (const char* key : keys) {
    if (const auto* setting = reading.find(key)) return reading.error(*setting, what);
  }
  reading.errors.push_back(what);
}

void best_model_checks(Reading& reading) {
  const auto& config = reading.config;
  const bool evaluates = config.eval_strategy != When::no;
  if (config.early_stopping_patience > 0 && !evaluates)
    error_at_first(reading, {"early_stopping_patience"}, "requires eval_strategy: steps or epoch");
  auto metric = config.metric_for_best_model;
  if (metric.starts_with("eval_")) metric = metric.substr(5);
  if (evaluates && config.task == Task::sft && metric != "loss" &&
      metric != "mean_token_accuracy" && metric != "entropy")
    error_at_first(reading, {"metric_for_best_model"},
                   fmt::format("unknown metric {}; use loss, mean_token_accuracy or entropy",
                               rendezvous::shown(metric, 64)));
  if (!config.load_best_model_at_end) return;
  if (!evaluates)
    return error_at_first(reading, {"load_best_model_at_end"},
                          "requires eval_strategy: steps or epoch");
  if (config.save_strategy == When::best) return;
  if (config.save_strategy != config.eval_strategy)
    return error_at_first(reading, {"load_best_model_at_end"},
                          "requires equal save_strategy and eval_strategy, or save_strategy: best");
  if (config.save_strategy != When::steps) return;
  const double every = config.eval_steps > 0 ? config.eval_steps : config.logging_steps;
  const double times = config.save_steps / every;
  const bool same_unit = (config.save_steps < 1) == (every < 1);
  if (!same_unit || times < 1 || std::abs(times - std::round(times)) > 1e-9)
    error_at_first(reading, {"save_steps", "load_best_model_at_end"},
                   fmt::format("load_best_model_at_end requires an evaluation at every checkpoint: "
                               "save_steps {} must be a multiple of eval_steps {}",
                               shown_number(config.save_steps), shown_number(every)));
}

void trace_checks(Reading& reading) {
  const auto& config = reading.config;
  const auto* steps = reading.find("trace_steps");
  const auto* folder = reading.find("trace_dir");
  if (folder && config.trace_steps.empty())
    reading.note(*folder, "has no effect without trace_steps");
  const bool known = steps && !config.trace_steps.empty() && config.max_steps > 0;
  if (known && config.trace_steps.back() > config.max_steps)
    reading.error(*steps, fmt::format("step {} is out of range: max_steps is {}",
                                      config.trace_steps.back(), config.max_steps));
}

void model_checks(Reading& reading) {
  const auto& config = reading.config;
  const bool file = !config.model_name_or_path.empty(), made = !config.model_size.empty();
  if (!file && !made)
    reading.errors.push_back(
        "model_name_or_path is missing: set it to a folder in Hugging Face layout or a Hub id");
  if (file && made)
    error_at_first(reading, {"model_size"}, "contradicts model_name_or_path; keep one");
  const bool new_tokenizer = made && !file && config.tokenizer_path.empty();
  if (new_tokenizer && config.task == Task::grpo)
    error_at_first(reading, {"model_size"},
                   "requires tokenizer_path: a new model has no tokenizer");
  for (const char* key : {"tokenizer_kind", "vocab_size"})
    if (const auto* setting = reading.find(key); setting && !new_tokenizer)
      reading.error(
          *setting,
          "requires model_size without tokenizer_path: otherwise no tokenizer is trained");
  const std::int64_t least = config.tokenizer_kind == "bpe" ? kLeastBpe : kLeastCharacters;
  if (const auto* setting = reading.find("vocab_size");
      setting && new_tokenizer && config.vocab_size < least)
    reading.error(*setting, fmt::format("need at least {} with tokenizer_kind: {}", least,
                                        config.tokenizer_kind));
  if (const auto wrong =
          made ? model::size_mistake(config.model_size, config.model_family) : std::nullopt)
    error_at_first(reading, {"model_size"}, *wrong);
  if (const auto* family = reading.find("model_family"); family && !made)
    reading.error(*family, "requires model_size: a checkpoint has its own family");
  if (config.dataset_name.empty() && !reading.find("dataset_name"))
    reading.errors.push_back(
        "dataset_name is missing: set it to files, folders or names of the Hub");
}

void quantization_checks(Reading& reading) {
  const auto& config = reading.config;
  const auto bits = bits_of_base(config);
  if (bits == 0 || config.fp8 == Fp8::base) return;  // see fp8_rules
  const auto* key = bits == 4 ? "load_in_4bit" : "load_in_8bit";
  if (config.load_in_4bit && config.load_in_8bit)
    error_at_first(reading, {"load_in_8bit", "quantization_bit"},
                   "contradicts load_in_4bit or qlora; keep one");
  if (!config.use_peft)
    error_at_first(
        reading, {key, "quantization_bit"},
        fmt::format(
            "{}-bit weights cannot be trained, and LoRA is off; add lora_r, or leave it out",
            bits));
  if (config.dtype == Dtype::fp32)
    reading.config.notes.push_back(
        fmt::format("{} computes in fp32 because dtype is fp32; bf16 is the usual choice", key));
}

void adapter_checks(Reading& reading) {
  const auto& config = reading.config;
  quantization_checks(reading);
  if (!config.use_peft || !config.pissa) return;
  const auto refuse = [&](const char* why) {
    error_at_first(reading, {"init_lora_weights", "pissa_init"}, why);
  };
  if (bits_of_base(config) > 0)
    refuse("pissa changes the base weights, so it cannot be combined with 4-bit or 8-bit weights");
  if (config.use_dora) refuse("pissa cannot be combined with use_dora; keep one");
  if (!config.adapter_path.empty())
    refuse("pissa is a beginning, and adapter_path continues an adapter; keep one");
  if (config.task == Task::grpo)
    refuse("pissa is not supported by GRPO, whose reference model is the unchanged model");
}

void parallel_checks(Reading& reading) {
  const auto& config = reading.config;
  if (config.gradient_aggregation == Aggregation::median && config.zero_stage > 1)
    error_at_first(
        reading, {"gradient_aggregation"},
        fmt::format(
            "median requires zero_stage 0 or 1, not {}: each rank needs the gradients of all ranks",
            config.zero_stage));
  const bool weighted = config.batch_sharding == Sharding::weighted;
  if (weighted && config.gpu_weights.empty())
    error_at_first(reading, {"batch_sharding"},
                   "weighted requires gpu_weights with one number per rank");
  if (config.batch_sharding == Sharding::adaptive && config.full_determinism)
    error_at_first(reading, {"batch_sharding"},
                   "adaptive distributes work by measured times, which differ in every run; leave "
                   "it out with full_determinism: true");
  if (config.gemm_choice == GemmSelection::timed && config.task == Task::grpo)
    error_at_first(reading, {"gemm_choice"},
                   "timed is for products that have the same size in many steps, and the "
                   "micro-batches of GRPO have ever new sizes; leave it out");
  if (!weighted && !config.gpu_weights.empty())
    error_at_first(reading, {"gpu_weights"}, "requires batch_sharding: weighted");
  const auto& weights = config.gpu_weights;
  if (!weights.empty() &&
      std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; }))
    error_at_first(reading, {"gpu_weights"},
                   "gives no rank any work; at least one weight must be above 0");
  adapter_checks(reading);
  const auto& name = config.adapter_name;
  if (name.empty() || name.front() == '.' || name.find('/') != name.npos ||
      name.starts_with("checkpoint-") || name.starts_with("training_state"))
    error_at_first(
        reading, {"adapter_name"},
        "is also a folder name: it must not contain / or begin with a dot, checkpoint- or "
        "training_state");
}

void loss_checks(Reading& reading) {
  const auto& config = reading.config;
  if (const auto sync = config.grpo.find("sync_ref_model");
      config.use_peft && sync != config.grpo.end() &&
      to_flag({.kind = YamlNode::Kind::scalar, .text = sync->second}))
    reading.errors.push_back(
        "sync_ref_model: with LoRA the reference is the model without the adapter, which never "
        "changes; leave sync_ref_model out, or train all weights");
  if (config.use_peft)
    for (const auto& layer : config.lora_target_modules)
      if (layer == "lm_head" || layer == "embed_tokens")
        error_at_first(
            reading, {"lora_target_modules"},
            fmt::format("{} cannot have an adapter; list it in lora_modules_to_save", layer));
  if (config.packing && config.group_by_length)
    error_at_first(reading, {"group_by_length"},
                   "contradicts packing: true, which already fills every sequence");
  if (config.lr_scheduler_type == "warmup_stable_decay" &&
      !config.lr_scheduler_kwargs.count("num_decay_steps"))
    error_at_first(reading, {"lr_scheduler_kwargs", "lr_scheduler_type"},
                   "warmup_stable_decay requires num_decay_steps");
  const auto& numbers = config.lr_scheduler_kwargs;
  const bool minimum = config.lr_scheduler_type.ends_with("with_min_lr");
  if (minimum && numbers.count("min_lr") + numbers.count("min_lr_rate") != 1)
    error_at_first(
        reading, {"lr_scheduler_kwargs", "lr_scheduler_type"},
        fmt::format("{} requires either min_lr or min_lr_rate", config.lr_scheduler_type));
}

// axolotl pushes to the Hub if hub_model_id is set.
void hub_rule(Reading& reading) {
  auto& config = reading.config;
  const auto* name = reading.find("hub_model_id");
  const auto* model = reading.find("model_name_or_path");
  if (!name || reading.find("push_to_hub")) return;
  config.push_to_hub = model && model->written == "base_model";
  reading.note(*name, config.push_to_hub ? "means push_to_hub: true, as in axolotl"
                                         : "has no effect without push_to_hub: true");
}

void wandb_rule(Reading& reading) {
  const auto* project = reading.find("wandb_project");
  const auto& formats = reading.config.report_to;
  if (project && std::find(formats.begin(), formats.end(), "wandb") == formats.end())
    reading.note(*project, "has no effect without report_to: wandb");
}

// A new start and a checkpoint to resume from contradict each other.
void overwrite_rule(Reading& reading) {
  auto& config = reading.config;
  const auto* resume = reading.find("resume_from_checkpoint");
  if (!resume) resume = reading.find("auto_resume_from_checkpoints");
  if (!config.overwrite_output_dir || !resume || config.resume_from_checkpoint == "no") return;
  reading.error(
      *reading.find("overwrite_output_dir"),
      fmt::format("starts anew, but {} ({}) resumes; keep one", resume->written, resume->where));
}

}  // namespace

void evaluation_rules(Reading& reading) {
  auto& config = reading.config;
  hub_rule(reading);
  wandb_rule(reading);
  overwrite_rule(reading);
  per_epoch_rule(reading, "evals_per_epoch", "eval_steps", &TrainConfig::eval_steps,
                 &TrainConfig::eval_strategy);
  per_epoch_rule(reading, "saves_per_epoch", "save_steps", &TrainConfig::save_steps,
                 &TrainConfig::save_strategy);
  check_steps(reading, "eval_steps", config.eval_steps);
  check_steps(reading, "save_steps", config.save_steps);
  check_steps(reading, "logging_steps", config.logging_steps);
  const auto* strategy = reading.find("eval_strategy");
  const auto* steps = reading.find("eval_steps");
  if (!steps) steps = reading.find("evals_per_epoch");
  if (steps && steps->key->name == "evals_per_epoch" && steps->value.text == "0") steps = nullptr;
  if (!strategy && steps && config.eval_strategy == When::no && has_evaluation_data(config)) {
    config.eval_strategy = When::steps;
    reading.note(*steps, "turns evaluation on: eval_strategy: steps");
  } else if (steps && config.eval_strategy == When::no) {
    reading.note(*steps, strategy ? "has no effect with eval_strategy: no"
                                  : "has no effect without eval_dataset or val_set_size");
  } else if (!strategy && config.eval_strategy == When::no && has_evaluation_data(config)) {
    const auto* data = reading.find("eval_dataset");
    if (!data) data = reading.find("val_set_size");
    if (data) reading.note(*data, "is not used: set eval_strategy or eval_steps to evaluate");
  }
  if (config.eval_strategy != When::no && !has_evaluation_data(config))
    reading.error(strategy ? *strategy : *steps,
                  "requires evaluation data; set eval_dataset or val_set_size");
}

void cross_checks(Reading& reading) {
  model_checks(reading);
  best_model_checks(reading);
  parallel_checks(reading);
  loss_checks(reading);
  trace_checks(reading);
}

}  // namespace mgpu::train
