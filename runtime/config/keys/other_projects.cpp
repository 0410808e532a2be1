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
          key("liger_rms_norm", kernels, {"liger_layer_norm", "liger_rms_norm_gated"}),
          key("liger_glu_activation", kernels, {"liger_swiglu"}),
          key("liger_fused_linear_cross_entropy", chunked,
              {"liger_cross_entropy", "cut_cross_entropy"}),
          key("attn_implementation", "variable-length attention is always used",
              {"flash_attention", "flash_attn", "sdp_attention", "xformers_attention",
               "use_flash_attention", "use_flash_attention_2", "sdpa_attention", "flex_attention",
               "flex_attn_compile_kwargs", "eager_attention"}),
          key("padding_free", "attention never sees padding; packing: true avoids padding"),
          key("eval_packing", "evaluation is computed row by row, with the same loss",
              {"eval_sample_packing"}),
          key("test_value", "no trainer reads it"),
          key("pad_to_sequence_len", "batches are padded to their longest row"),
          key("pad_to_multiple_of", "the kernels decide how batches are padded"),
          key("gradient_checkpointing_kwargs", "recomputation is always non-reentrant and exact"),
          key("use_reentrant", "recomputation is always non-reentrant and exact",
              {"use_reentrant_gc"}),
          key("ddp_find_unused_parameters", graph, {"find_unused_parameters"}),
          key("ddp_broadcast_buffers", "the models have no buffers that change"),
          key("ddp_static_graph", graph),
          key("contiguous_gradients", "gradients are always contiguous"),
          key("reduce_scatter", "ZeRO always uses reduce-scatter"),
          key("enable_cudnn_benchmark", "there are no convolutions", {"cudnn_benchmark"}),
          key("tf32", "matrix products are in bf16, or in exact fp32 with dtype: fp32",
              {"enable_tf32"}),
          key("fp8_backend", "fp8 has one implementation, with scales per block"),
          key("fp8_enable_fsdp_float8_all_gather",
              "fp8: base always gathers weights in 8 bits, fp8: mlp in 16 bits"),
          key("dataloader_persistent_workers", loader),
          key("dataloader_drop_last", "the last, smaller batch is weighted correctly"),
          key("remove_unused_columns", "unused columns are never read"),
          key("dataset_kwargs", "rows are tokenized once, and cached"),
          key("dataset_batch_size",
              "memory does not grow with files; rows are tokenized before the first step"),
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
          key("trust_remote_code",
              "code of a checkpoint is never run, and the supported models need none",
              {"trust_remote", "trust_remote_code_model"}),
          key("unsloth", kernels, {"use_unsloth", "use_unsloth_gc"}),
          key("lora_mlp_kernel", kernels,
              {"lora_qkv_kernel", "lora_o_kernel", "fused_attn_kernel", "flash_attn_cross_entropy",
               "flash_attn_rms_norm", "flash_attn_fuse_mlp", "flash_attn_fuse_qkv", "use_kernels"}),
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
          key("save_safetensors", "checkpoints are always in safetensors format"),
          key("save_on_each_node",
              "rank 0 saves the model, each rank its part of the training state"),
          key("enable_jit_checkpoint", "SIGTERM always saves a checkpoint"),
          key("ignore_data_skip",
              "a resumed run continues at the next row without replaying earlier ones"),
          key("hub_always_push", "the model is uploaded once, when training has ended"),
          key("lora_task_type", "it is always CAUSAL_LM", {"task_type", "peft_type"}),
          key("autocast_adapter_dtype", "adapters are always fp32"),
          key("loraplus_lr_embedding",
              "it is the rate of adapters of embeddings; embeddings in lora_modules_to_save have "
              "learning_rate"),
          key("pissa_convert",
              "an adapter that begins with pissa is always saved as an ordinary LoRA adapter of "
              "the unchanged model"),
          key("llm_int8_threshold",
              "8-bit weights are multiplied in dtype, so large inputs need no separate product"),
          key("bnb_4bit_compute_dtype", "the computation is in dtype"),
          key("bnb_4bit_quant_storage", "it is always uint8, as in bitsandbytes",
              {"bnb_4bit_quant_storage_dtype"}),
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
          key("tokenizer_type", "tokenizer.json describes the whole tokenizer",
              {"tokenizer_use_fast", "use_fast_tokenizer", "tokenizer_legacy"}),
          key("fsdp_version", "zero_stage decides what is sharded",
              {"fsdp_transformer_layer_cls_to_wrap"}),
          key("skip_prepare_dataset", "rows are tokenized once, and cached"),
          key("eot_tokens", "the loss of an assistant's turn includes its end, by the template"),
          key("resize_token_embeddings_to_32x", "the embeddings have a row per token"),
          key("hf_use_auth_token", "hf uses HF_TOKEN, or the token of `hf auth login`",
              {"use_auth_token"}),
          key("push_dataset_to_hub", "only models are uploaded", {"hf_use_auth_token_dataset"}),
          key("torchdistx_path", own_loop, {"base_model_ignore_patterns", "model_config_type"}),
          key("eta_min", "set lr_scheduler_kwargs to {min_lr: NUMBER}"),
          key("use_ray", "mgpu-run starts the ranks; its --nproc is how many", {"ray_num_workers"}),
          key("use_swanlab", log,
              {"swanlab_project", "swanlab_experiment_name", "swanlab_description", "swanlab_mode",
               "swanlab_workspace", "swanlab_log_model", "swanlab_log_completions",
               "swanlab_completion_log_interval", "swanlab_completion_max_buffer",
               "swanlab_run_name", "swanlab_api_key"}),
          key("use_otel_metrics", log, {"otel_metrics_host", "otel_metrics_port"}),
          key("use_mlflow", log,
              {"mlflow_tracking_uri", "mlflow_experiment_name", "mlflow_run_name",
               "hf_mlflow_log_artifacts", "use_comet", "comet_api_key", "comet_workspace",
               "comet_project_name", "comet_experiment_key", "comet_mode", "comet_online"}),
          key("ray_run_name", "mgpu-run starts the ranks; its --nproc is how many",
              {"ray_storage_path", "ray_storage_filesystem", "ray_init_kwargs",
               "resources_per_worker", "placement_strategy"}),
          key("past_index", own_loop, {"ray_scope", "mp_parameters", "torchdynamo"}),
          key("project", "report_to supports tensorboard and wandb",
              {"trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"}),
      },
      KeyUse::ignored);
}

std::vector<KeySpec> refused_keys() {
  const std::string convert = "convert the data to JSONL and set dataset_name to the file";
  const std::string moe = "mixture-of-experts models cannot be trained";
  const std::string one_way = "a model is split over GPUs by zero_stage: 3 only";
  return marked(
      {
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
          key("sid_index_path", convert),
          key("item_meta_path", convert),
          key("category", convert),
          unless({"-1"}, key("sample", "use max_samples")),
          unless({"keep_start"},
                 key("truncation_mode", "rows are always cut at their end (keep_start)")),
          unless({"true", "True"},
                 key("average_tokens_across_devices", "use gradient_aggregation: mean")),
          key("lora_bias", "biases are never trained; use bias: none", {"bias"}),
          key("rank_pattern", "all layers have the same rank: use lora_r", {"alpha_pattern"}),
          key("layers_to_transform", "adapters are on all layers; leave it out",
              {"lora_layers_to_transform"}),
          key("lora_target_parameters", "adapters are on linear layers: use lora_target_modules"),
          key("parallelism_config", one_way),
          key("eval_delay", "the first evaluation is after eval_steps; leave it out"),
          key("optim_args", "use adam_beta1, adam_beta2, adam_epsilon, weight_decay"),
          key("adafactor", "use optim: adamw_8bit"),
          unless({"bnb", "bitsandbytes", "BNB", "BITS_AND_BYTES"},
                 key("quant_method", "the layout is always that of bitsandbytes: use bnb",
                     {"quantization_method"})),
          key("deepspeed_offload", "there is no offloading; use zero_stage: 3 or load_in_4bit",
              {"cpu_offload", "offload_optimizer", "offload_param"}),
          key("lora_fan_in_fan_out", "adapters are on ordinary linear layers; leave it out"),
          key("length_column_name", "lengths are counted from the rows; leave it out"),
      },
      KeyUse::refused);
}

}  // namespace mgpu::train
