#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/data_source.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::train {

enum class Task { sft, grpo };
enum class Dtype { automatic, bf16, fp16, fp32 };
enum class When { no, steps, epoch, best };
enum class Recompute { no, full, automatic, offload };
enum class Aggregation { weighted, mean, median, sum };
enum class Sharding { uniform, weighted, adaptive };
// Who chooses between the algorithms of a matrix product.
enum class GemmSelection { heuristic, timed };
enum class BadRow { error, skip };
// How an epoch combines datasets; runtime/data/mixture.hpp describes them.
enum class MixStrategy { concat, interleave_under, interleave_over, interleave_once };
enum class NonFinite { skip, stop };
enum class OutOfMemory { shrink, restart, fail };

// What is computed in 8-bit floating point: nothing, the products with a frozen base model, or
// those of the MLP in full training. `automatic` becomes one of the last two.
enum class Fp8 { none, automatic, base, mlp };

// From where names of models and datasets are downloaded.
enum class Hub { automatic, huggingface, modelscope };

// zero_stage: auto, which is 1 for several ranks, and more if the GPU is too small.
inline constexpr int kAutomaticStage = -1;

// recomputed_layers: all, and auto, which is the smallest number that fits into the GPU's memory.
inline constexpr std::int64_t kAllLayers = -1;
inline constexpr std::int64_t kFewestLayers = -2;

// A value of chat_template with this beginning is the tokenizer's template, or, if it has none, the
// one whose name follows.
inline constexpr const char* kTokenizerTemplateOr = "tokenizer_default_fallback_";

// Whether a value of chat_template is Jinja text.
bool is_template_text(const std::string& value);

// The configuration that a recipe describes. Members are named after the canonical keys of the YAML
// file (names of TRL and transformers); docs/keys.md has the aliases, default and meaning of each.
struct TrainConfig {
  Task task = Task::sft;

  // model
  std::string model_name_or_path;  // a folder, or the name of a model of the hub
  std::string model_revision = "main";
  Hub hub = Hub::automatic;
  bool offline = false;                               // nothing is downloaded
  std::string model_size;                             // from scratch: tiny, small, ...
  model::Family model_family = model::Family::qwen2;  // of a model from scratch
  std::string tokenizer_path;
  // Of the tokenizer that is trained from the data for a model from scratch without one.
  std::string tokenizer_kind = "bpe";
  std::int64_t vocab_size = 8192;
  Dtype dtype = Dtype::automatic;
  double loss_scale = 0;  // for fp16; 0: dynamic
  double initial_scale_power = 16;
  std::int64_t loss_scale_window = 2000;
  int loss_scale_hysteresis = 1;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool load_in_4bit = false, load_in_8bit = false;
  Fp8 fp8 = Fp8::none;
  std::string bnb_4bit_quant_type = "nf4";
  bool use_bnb_nested_quant = false;
  std::vector<std::string> new_tokens;  // added to the tokenizer; embeddings are resized
  std::vector<std::string> new_special_tokens;
  std::map<std::string, std::string> special_tokens;  // by role, such as eos_token
  // A name, a file, or Jinja text; empty: the tokenizer's own.
  std::string chat_template;
  std::string default_system_prompt;  // of conversations without a system message

  // data
  std::vector<DataSource> dataset_name;
  std::vector<DataSource> eval_dataset;
  std::string dataset_config;       // subset of datasets that name none
  std::string dataset_train_split;  // of datasets of dataset_name that name none
  std::string dataset_test_split;   // for evaluation, of dataset_name
  std::int64_t max_samples = 0;     // of each dataset; 0: all
  std::string dataset_text_field = "text";
  std::string prompt_template;  // text with "{column}" placeholders
  std::string dataset_format = "auto";
  MixStrategy mix_strategy = MixStrategy::concat;
  std::vector<double> interleave_probs;  // of the datasets; empty: equal
  bool streaming = false;
  std::int64_t buffer_size = 10000;  // rows of a window of a stream
  double val_set_size = 0;           // a fraction below 1, else a number of rows
  std::int64_t max_length = 1024;
  bool packing = false;
  std::string packing_strategy = "bfd";  // or sequential
  bool group_by_length = false;
  bool shuffle_dataset = true;
  std::optional<bool> completion_only_loss;
  bool assistant_only_loss = false;
  bool dataset_exact_deduplication = false;
  BadRow on_bad_row = BadRow::error;
  std::string dataset_prepared_path;  // the cache of token ids; empty: next to the Hub cache

  // batch
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;
  bool gradient_accumulation_given = false;
  std::int64_t global_batch_size = 0;  // 0: per device x accumulation x ranks
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;

  // optimizer
  double learning_rate = 2e-5;
  std::string lr_scheduler_type = "linear";
  std::map<std::string, double> lr_scheduler_kwargs;
  double warmup_steps = 0;  // below 1: a fraction of all steps
  std::string optim = "adamw_torch_fused";
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = 1;
  std::string optim_dtype = "fp32";  // dtype of the moments: fp32 or bf16
  std::string grad_dtype = "fp32";   // dtype in which gradients are accumulated and reduced
  NonFinite on_non_finite = NonFinite::skip;

  // memory and parallelism
  Recompute gradient_checkpointing = Recompute::automatic;
  std::int64_t recomputed_layers = kFewestLayers;  // the first ones; the others keep everything
  std::optional<bool> offload_embedding;           // to host memory; empty: auto
  std::int64_t head_rows = model::kHeadRows;       // target tokens whose logits exist at a time
  int zero_stage = kAutomaticStage;
  OutOfMemory oom = OutOfMemory::shrink;
  std::int64_t reduce_bucket_size = 0;     // elements; 0: chosen
  std::int64_t allgather_bucket_size = 0;  // elements; 0: chosen
  bool overlap_comm = true;
  GemmSelection gemm_choice = GemmSelection::heuristic;
  Aggregation gradient_aggregation = Aggregation::weighted;
  Sharding batch_sharding = Sharding::uniform;
  std::vector<double> gpu_weights;
  std::int64_t consistency_check_steps = 0;  // interval in steps; 0: never
  std::string backend = "auto";
  double ddp_timeout = 1800;  // seconds

  // LoRA
  bool use_peft = false;
  std::int64_t lora_r = 16;
  double lora_alpha = 32;
  double lora_dropout = 0.05;
  std::vector<std::string> lora_target_modules;  // empty: all linear layers
  std::vector<std::string> lora_modules_to_save;
  bool use_rslora = false;
  bool use_dora = false;
  std::optional<std::int64_t> pissa;  // PiSSA: the iterations of its decomposition; -1: exact
  bool pissa_init = false;            // LLaMA-Factory's keys of PiSSA
  std::int64_t pissa_iter = 16;
  double loraplus_lr_ratio = 1;
  double neftune_noise_alpha = 0;
  std::string adapter_name = "default";
  std::string adapter_path;  // an adapter to continue training

  // evaluation, checkpoints
  When eval_strategy = When::no;
  double eval_steps = 0;  // below 1: a fraction of all steps; 0: as logging_steps
  bool eval_on_start = false;
  When save_strategy = When::steps;
  double save_steps = 500;            // below 1: a fraction of all steps
  std::int64_t save_total_limit = 0;  // 0: all
  bool async_save = true;
  bool save_only_model = false;
  bool save_final_model = true;  // into output_dir itself
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "loss";
  std::optional<bool> greater_is_better;
  std::int64_t early_stopping_patience = 0;  // 0: never
  double early_stopping_threshold = 0;
  double loss_watchdog_threshold = 0;  // 0: no watchdog
  std::int64_t loss_watchdog_patience = 3;
  std::string output_dir = "output";
  std::string resume_from_checkpoint = "auto";  // auto, no, or a folder
  bool resume_with_changes = false;             // although the checkpoint is of another run
  bool overwrite_output_dir = false;            // starts anew, without what earlier runs saved
  bool push_to_hub = false;                     // uploads the final model
  std::string hub_model_id, hub_revision, hub_token;
  bool hub_private_repo = false;

  // logging
  double logging_steps = 10;
  bool logging_first_step = true;
  std::vector<std::string> report_to;  // tensorboard, wandb
  std::string logging_dir;
  std::string run_name;
  std::string wandb_project;
  bool plot_loss = true;
  std::vector<std::int64_t> trace_steps;  // counted from 1, ascending
  std::string trace_dir;                  // empty: output_dir/traces

  // seeds
  std::uint64_t seed = 42;
  std::optional<std::uint64_t> data_seed;
  bool full_determinism = false;
  int dataset_num_proc = 0;            // tokenizer threads of this rank; 0: one per core
  int dataloader_num_workers = 1;      // threads of this rank that prepare batches; 0: none
  int dataloader_prefetch_factor = 2;  // steps per such thread to prepare in advance
  bool dataloader_pin_memory = true;

  // The keys of task grpo by canonical name; values are flow YAML and checked by type.
  std::map<std::string, std::string> grpo;
  // Keys of the other task, unused.
  std::map<std::string, std::string> other_task;
  // Notes for the user about keys without effect or with another meaning, one per line.
  std::vector<std::string> notes;
};

// The bits of a weight of the frozen base model: 4, 8, or 0 if it is not quantized.
inline int bits_of_base(const TrainConfig& config) {
  if (config.load_in_4bit) return 4;
  return config.load_in_8bit || config.fp8 == Fp8::base ? 8 : 0;
}

// Whether one of the names is that of the module, or ends with it: model.embed_tokens.
inline bool names_module(const std::vector<std::string>& names, const std::string& module) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == module || name.ends_with("." + module);
  });
}

// Whether training does not change the embedding of an untied model.
inline bool has_frozen_embedding(const TrainConfig& config) {
  return config.use_peft && !names_module(config.lora_modules_to_save, "embed_tokens");
}

// How many of a model's layers are recomputed, from the first one on. While the planner has not
// chosen, gradient_checkpointing: auto counts as none, and recomputed_layers: auto as all.
inline std::int64_t recomputed_layers_of(const TrainConfig& config, std::int64_t layers) {
  if (config.gradient_checkpointing == Recompute::no ||
      config.gradient_checkpointing == Recompute::automatic)
    return 0;
  return config.recomputed_layers < 0 ? layers : std::min(config.recomputed_layers, layers);
}

}  // namespace mgpu::train
