// Keys that mgpu-run reads, and keys of other trainers that have no effect or are refused.

#include <initializer_list>

#include <fmt/format.h>

#include "runtime/config/keys/key_table.hpp"

namespace mgpu::train {
namespace {

KeySpec key(std::string name, std::string instead,
            std::initializer_list<std::string> aliases = {}) {
  return {.name = std::move(name), .aliases = aliases, .instead = std::move(instead)};
}

KeySpec unless(std::vector<std::string> harmless, KeySpec spec) {
  spec.harmless = std::move(harmless);
  return spec;
}

std::vector<KeySpec> marked(std::vector<KeySpec> keys, KeyUse use) {
  for (auto& spec : keys) spec.use = use;
  return keys;
}

}  // namespace

std::vector<KeySpec> launcher_keys() {
  const auto option = [](const char* name) {
    return fmt::format("mgpu-run reads it as its option --{}", name);
  };
  return {
      key("launch", "section with the options of mgpu-run"),
      key("nproc", option("nproc"), {"num_gpus", "nproc_per_node", "gpus", "n_gpus"}),
      key("num_processes", option("num-processes"), {"world_size"}),
      key("gpu_ids", option("gpus"), {"device_ids", "cuda_visible_devices"}),
      key("nnodes", option("nnodes"), {"num_machines", "num_nodes"}),
      key("node_rank", option("node-rank"), {"machine_rank"}),
      key("local_rank", "mgpu-run sets it for each rank"),
      key("master_addr", option("master-addr"), {"main_process_ip"}),
      key("master_port", option("master-port"), {"main_process_port"}),
      key("max_restarts", option("max-restarts"), {"max_retries"}),
      key("retry_delay", option("retry-delay")),
      key("enable_fault_tolerance", option("max-restarts")),
      key("enabled", "mgpu-run decides how many ranks to start", {"use_ddp", "multi_gpu"}),
      key("rdzv_backend", option("rdzv-backend")),
      key("same_network", "nodes find each other in either case"),
  };
}

std::vector<KeySpec> ignored_keys() {
  const std::string kernels = "built-in kernels are always used";
  const std::string hub = "nothing is uploaded";
  const std::string memory = "memory is planned before training starts and monitored by mgpu-run";
  const std::string loader =
      "the threads of dataloader_num_workers prepare batches in order until training ends";
  const std::string graph = "every parameter is used in every step";
  const std::string log =
      "metrics are written to the terminal, metrics.jsonl and the formats in report_to";
  const std::string wandb = "report_to: wandb writes offline files; set it when you sync them";
  const std::string own_loop = "mgpu-train has its own training loop";
  const std::string chunked = "the loss is always computed without the full matrix of logits";
  return marked(
      {
          key("use_liger_kernel", kernels,
              {"enable_liger_kernel", "use_liger", "liger_kernel_config"}),
          key("liger_rope", kernels),
          key("liger_rms_norm", kernels),
          key("liger_glu_activation", kernels, {"liger_swiglu"}),
          key("liger_fused_linear_cross_entropy", chunked, {"liger_cross_entropy"}),
          key("attn_implementation", "variable-length attention is always used",
              {"flash_attention", "flash_attn", "sdp_attention", "xformers_attention",
               "use_flash_attention", "use_flash_attention_2", "sdpa_attention"}),
          key("padding_free", "attention never sees padding; packing: true avoids padding"),
          key("pad_to_sequence_len", "batches are padded to their longest row"),
          key("pad_to_multiple_of", "the kernels decide how batches are padded"),
          key("pad_token", "padding is never computed with, whatever its token"),
          key("template", "the tokenizer's chat template is used, or the file in chat_template"),
          key("gradient_checkpointing_kwargs", "recomputation is always non-reentrant and exact"),
          key("use_reentrant", "recomputation is always non-reentrant and exact"),
          key("ddp_find_unused_parameters", graph, {"find_unused_parameters"}),
          key("ddp_broadcast_buffers", "the models have no buffers that change"),
          key("ddp_static_graph", graph),
          key("contiguous_gradients", "gradients are always contiguous"),
          key("reduce_scatter", "ZeRO always uses reduce-scatter"),
          key("enable_cudnn_benchmark", "there are no convolutions", {"cudnn_benchmark"}),
          key("tf32", "matrix products are in bf16, or in exact fp32 with dtype: fp32",
              {"enable_tf32"}),
          key("dataloader_persistent_workers", loader),
          key("dataloader_drop_last", "the last, smaller batch is weighted correctly"),
          key("remove_unused_columns", "unused columns are never read"),
          key("dataset_kwargs", "rows are tokenized once, and cached"),
          key("dataset_batch_size", "files are always streamed",
              {"dataset_streaming", "streaming"}),
          key("dataset_train_split", "a file has no splits; all of its rows are used"),
          key("dataset_test_split", "a file has no splits; set eval_dataset to another file"),
          key("overwrite_cache", "cache entries are keyed by the content of the rows"),
          key("memory_optimization", memory, {"enable_memory_optimization"}),
          key("memory_warning_threshold", memory),
          key("memory_critical_threshold", memory),
          key("enable_auto_cleanup", memory),
          key("cleanup_interval", memory),
          key("torch_empty_cache_steps", memory),
          key("auto_find_batch_size", "mgpu-train plan proposes a batch size", {"auto_batch_size"}),
          key("gradient_accumulation_strategy",
              "every rank accumulates, then gradients are reduced once"),
          key("use_cache", "training has no KV cache"),
          key("low_cpu_mem_usage", "weights are memory-mapped and read once"),
          key("device_map", "rank r uses GPU r"),
          key("torch_compile", kernels, {"compile", "torch_compile_backend", "torch_compile_mode"}),
          key("use_cpu", "CPUs are used if no GPU is visible", {"no_cuda"}),
          key("unsloth", kernels, {"use_unsloth", "use_unsloth_gc"}),
          key("lora_mlp_kernel", kernels, {"lora_qkv_kernel", "lora_o_kernel"}),
          key("do_train", "mgpu-train FILE.yaml trains"),
          key("do_eval", "set eval_strategy"),
          key("do_predict", "use mgpu-train generate"),
          key("predict_with_generate", "use mgpu-train generate"),
          key("prediction_loss_only", "evaluation computes the loss"),
          key("log_level", log,
              {"log_level_replica", "debug", "verbose", "logging_nan_inf_filter"}),
          key("logging_strategy", "set logging_steps"),
          key("log_on_each_node", log),
          key("disable_tqdm", log),
          key("include_num_input_tokens_seen", "tokens are always counted",
              {"include_tokens_per_second", "include_effective_tokens_per_second"}),
          key("wandb_entity", wandb,
              {"wandb_watch", "wandb_mode", "wandb_run_id", "wandb_log_model"}),
          key("overwrite_output_dir",
              "a run resumes from a checkpoint in output_dir; resume_from_checkpoint: no starts "
              "over"),
          key("save_safetensors", "checkpoints are always in safetensors format"),
          key("save_on_each_node",
              "rank 0 saves the model, each rank its part of the training state"),
          key("enable_jit_checkpoint", "SIGTERM always saves a checkpoint"),
          key("ignore_data_skip",
              "a resumed run continues at the next row without replaying earlier ones"),
          key("hub_model_id", hub,
              {"hub_strategy", "hub_private_repo", "hub_token", "hub_revision", "hub_always_push",
               "hub_model_revision"}),
          key("lora_task_type", "it is always CAUSAL_LM", {"task_type", "peft_type"}),
          key("autocast_adapter_dtype", "adapters are always fp32"),
          key("bnb_4bit_compute_dtype", "the computation is in dtype"),
          key("bnb_4bit_quant_storage", "it is always uint8, as in bitsandbytes",
              {"bnb_4bit_quant_storage_dtype"}),
          key("quant_method", "the tables and the layout are always those of bitsandbytes",
              {"quantization_method"}),
          key("use_mps_device", own_loop),
          key("accelerator_config", own_loop),
          key("compute_environment", own_loop, {"main_training_function"}),
          key("distributed_type", "set zero_stage"),
          key("eval_accumulation_steps", "evaluation does not keep logits",
              {"eval_do_concat_batches"}),
          key("strict", "unknown keys are errors; --allow-unknown makes them notes"),
          key("lora_on_cpu", "use mgpu-train merge"),
          key("bf16_full_eval", "evaluation also computes in dtype", {"fp16_full_eval"}),
          key("include_for_metrics", "evaluation computes the loss",
              {"batch_eval_metrics", "include_inputs_for_metrics", "label_names",
               "eval_use_gather_object", "skip_memory_metrics"}),
          key("dataloader_in_order", loader,
              {"dataloader_multiprocessing_context", "split_batches", "dispatch_batches"}),
          key("restore_callback_states_from_checkpoint", own_loop),
          key("ignore_bias_buffers", own_loop),
          key("half_precision_backend", "set dtype",
              {"fp16_backend", "fp16_opt_level", "use_ipex", "jit_mode_eval"}),
          key("past_index", own_loop, {"ray_scope", "mp_parameters", "torchdynamo"}),
          key("project", "report_to supports tensorboard and wandb",
              {"trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"}),
      },
      KeyUse::ignored);
}

std::vector<KeySpec> refused_keys() {
  const std::string code =
      "code from a checkpoint is never run, and supported models need none; leave it out";
  const std::string zero = "use zero_stage: 3";
  const std::string convert = "convert the data to JSONL and set dataset_name to the file";
  const std::string moe = "mixture-of-experts models cannot be trained";
  const std::string one_way = "a model is split over GPUs by zero_stage: 3 only";
  const std::string noise = "there is no embedding noise; leave it out";
  return marked(
      {
          key("trust_remote_code", code, {"trust_remote"}),
          key("fsdp", zero, {"fsdp_config", "fsdp_transformer_layer_cls_to_wrap", "fsdp_version"}),
          key("use_dora", "leave it out, or set use_rslora: true",
              {"lora_use_dora", "peft_use_dora"}),
          key("load_in_8bit", "use load_in_4bit: true"),
          key("neftune_noise_alpha", noise, {"neftune_alpha"}),
          unless({"0.0"},
                 key("label_smoothing_factor", "there is no label smoothing; leave it out")),
          unless({"0.0"},
                 key("router_aux_loss_coef", moe, {"output_router_logits", "moe_aux_loss_coef"})),
          key("freeze_llm",
              "new embeddings cannot be trained alone; lora_modules_to_save comes closest"),
          key("unfrozen_parameters", "use LoRA with lora_target_modules",
              {"freeze_trainable_layers", "freeze_parts"}),
          key("train_from_scratch", "use model_size"),
          key("formatting_func", "use prompt_template"),
          key("dataset_config", "a file has no subsets; " + convert,
              {"dataset_config_name", "subset"}),
          key("sid_index_path", convert),
          key("item_meta_path", convert),
          key("category", convert),
          unless({"-1"}, key("sample", "shorten the file, or use max_steps",
                             {"max_samples", "max_train_samples"})),
          key("special_tokens", "use new_tokens, or set them in tokenizer_config.json"),
          key("eos_token", "set the token in tokenizer_config.json", {"bos_token"}),
          unless({"keep_start"},
                 key("truncation_mode", "rows are always cut at their end (keep_start)")),
          key("push_to_hub", "nothing is uploaded; run `hf upload` on output_dir",
              {"push_to_hub_model_id"}),
          unless({"true", "True"},
                 key("average_tokens_across_devices", "use gradient_aggregation: mean")),
          unless({"true", "True"}, key("init_lora_weights",
                                       "A is always random and B zero, which is what true means")),
          key("lora_bias", "biases are never trained; use bias: none", {"bias"}),
          key("rank_pattern", "all layers have the same rank: use lora_r", {"alpha_pattern"}),
          key("layers_to_transform", "adapters are on all layers; leave it out",
              {"lora_layers_to_transform"}),
          key("lora_target_parameters", "adapters are on linear layers: use lora_target_modules"),
          key("parallelism_config", one_way),
          key("eval_delay", "the first evaluation is after eval_steps; leave it out"),
          key("loraplus_lr_ratio", "all adapter weights have one rate: use learning_rate"),
          key("use_galore", "use optim: adamw_8bit",
              {"optim_target_modules", "use_badam", "use_apollo"}),
          key("optim_args", "use adam_beta1, adam_beta2, adam_epsilon, weight_decay"),
          key("adafactor", "use optim: adamw_8bit"),
          unless({"1"}, key("tensor_parallel_size", one_way,
                            {"context_parallel_size", "sequence_parallel_size",
                             "pipeline_parallel_size"})),
          key("fp8", "use dtype: bf16", {"torchao"}),
          key("deepspeed_offload", "there is no offloading; use zero_stage: 3 or load_in_4bit",
              {"cpu_offload", "offload_optimizer", "offload_param"}),
          key("length_column_name", "lengths are counted from the rows; leave it out"),
          key("relora_steps", "leave it out", {"relora"}),
      },
      KeyUse::refused);
}

}  // namespace mgpu::train
