// The table's part about keys that other programs read, and about those of other systems.

#include <initializer_list>

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
  const std::string section = "mgpu-run reads it under launch: or as an option";
  return {
      key("launch", "mgpu-run's section"),
      key("nproc", "mgpu-run --nproc N",
          {"num_gpus", "nproc_per_node", "num_processes", "gpus", "n_gpus", "world_size"}),
      key("gpu_ids", "mgpu-run --gpus 0,1", {"device_ids", "cuda_visible_devices"}),
      key("nnodes", section, {"num_machines", "num_nodes"}),
      key("node_rank", section, {"machine_rank"}),
      key("local_rank", "mgpu-run tells each rank"),
      key("master_addr", section, {"main_process_ip"}),
      key("master_port", section, {"main_process_port"}),
      key("max_restarts", "mgpu-run --max-restarts N", {"max_retries"}),
      key("retry_delay", "mgpu-run --retry-delay SECONDS"),
      key("enable_fault_tolerance", "mgpu-run --max-restarts N"),
      key("enabled", "mgpu-run decides how many ranks there are", {"use_ddp", "multi_gpu"}),
      key("rdzv_backend", section),
      key("same_network", section),
  };
}

std::vector<KeySpec> noted_keys() {
  const std::string kernels = "our own kernels are always used";
  const std::string hub = "nothing is uploaded";
  const std::string memory = "memory is planned before the start and watched by mgpu-run";
  const std::string loader = "rows are read ahead by one thread into pinned memory";
  const std::string graph = "every parameter is used in every step";
  const std::string log = "metrics go to the terminal, to JSON lines and where report_to says";
  const std::string wandb = "report_to: wandb writes files; set it when you sync them";
  const std::string own_loop = "the trainer has one loop of its own";
  const std::string chunked = "the loss never holds a whole matrix of logits";
  return marked(
      {
          key("use_liger_kernel", kernels,
              {"enable_liger_kernel", "use_liger", "liger_kernel_config"}),
          key("liger_rope", kernels),
          key("liger_rms_norm", kernels),
          key("liger_glu_activation", kernels, {"liger_swiglu"}),
          key("liger_fused_linear_cross_entropy", chunked, {"liger_cross_entropy"}),
          key("attn_implementation", "attention of variable length is always used",
              {"flash_attention", "flash_attn", "sdp_attention", "xformers_attention",
               "use_flash_attention", "use_flash_attention_2", "sdpa_attention"}),
          key("padding_free", "rows never see padding; packing: true saves it"),
          key("pad_to_sequence_len", "batches are as long as their longest row"),
          key("pad_to_multiple_of", "batches are padded as the kernels like it"),
          key("pad_token", "padding takes part in nothing, whatever its token"),
          key("template", "the tokenizer's chat template is used, or chat_template"),
          key("gradient_checkpointing_kwargs", "recomputation is exact, without re-entrance"),
          key("use_reentrant", "recomputation is exact, without re-entrance"),
          key("ddp_find_unused_parameters", graph, {"find_unused_parameters"}),
          key("ddp_broadcast_buffers", "models have no buffers that change"),
          key("ddp_static_graph", graph),
          key("contiguous_gradients", "gradients always lie in flat buckets"),
          key("reduce_scatter", "ZeRO always reduces by scatter"),
          key("enable_cudnn_benchmark", "nothing here is a convolution", {"cudnn_benchmark"}),
          key("tf32", "matrix products are bf16, or exact fp32 on request", {"enable_tf32"}),
          key("dataloader_num_workers", loader, {"num_workers", "dataloader_prefetch_factor"}),
          key("dataloader_pin_memory", loader, {"pin_memory", "dataloader_persistent_workers"}),
          key("dataloader_drop_last", "uneven ends count with their true weight"),
          key("remove_unused_columns", "columns that are not used are not read"),
          key("dataset_kwargs", loader),
          key("dataset_batch_size", "files are read as streams",
              {"dataset_streaming", "streaming"}),
          key("dataset_train_split", "a file has no splits; all its rows are used"),
          key("dataset_test_split", "a file has no splits; eval_dataset names another file"),
          key("overwrite_cache", "the cache knows its rows by their content"),
          key("memory_optimization", memory, {"enable_memory_optimization"}),
          key("memory_warning_threshold", memory),
          key("memory_critical_threshold", memory),
          key("enable_auto_cleanup", memory),
          key("cleanup_interval", memory),
          key("torch_empty_cache_steps", memory),
          key("auto_find_batch_size", "mgpu-train plan proposes one", {"auto_batch_size"}),
          key("gradient_accumulation_strategy", "every rank accumulates, then all reduce"),
          key("use_cache", "training keeps no cache of keys"),
          key("low_cpu_mem_usage", "weights are mapped, and read once"),
          key("device_map", "rank r uses GPU r"),
          key("torch_compile", kernels, {"compile", "torch_compile_backend", "torch_compile_mode"}),
          key("use_cpu", "CPUs are used where no GPU is visible", {"no_cuda"}),
          key("unsloth", kernels, {"use_unsloth", "use_unsloth_gc"}),
          key("lora_mlp_kernel", kernels, {"lora_qkv_kernel", "lora_o_kernel"}),
          key("do_train", "running the file trains"),
          key("do_eval", "eval_strategy decides"),
          key("do_predict", "mgpu-train generate does"),
          key("predict_with_generate", "mgpu-train generate does"),
          key("prediction_loss_only", "evaluation measures the loss"),
          key("log_level", log,
              {"log_level_replica", "debug", "verbose", "logging_nan_inf_filter"}),
          key("logging_strategy", "logging_steps decides"),
          key("log_on_each_node", log),
          key("disable_tqdm", log),
          key("include_num_input_tokens_seen", "tokens are always counted",
              {"include_tokens_per_second", "include_effective_tokens_per_second"}),
          key("wandb_entity", wandb,
              {"wandb_watch", "wandb_mode", "wandb_run_id", "wandb_log_model"}),
          key("overwrite_output_dir",
              "a checkpoint in output_dir is resumed from; resume_from_checkpoint: no starts anew"),
          key("save_safetensors", "checkpoints are always safetensors"),
          key("save_on_each_node", "rank 0 saves, and each rank its part of the state"),
          key("enable_jit_checkpoint", "SIGTERM always saves a checkpoint"),
          key("ignore_data_skip", "a resumed run goes on at the next row, without a replay"),
          key("hub_model_id", hub,
              {"hub_strategy", "hub_private_repo", "hub_token", "hub_revision", "hub_always_push",
               "hub_model_revision"}),
          key("lora_task_type", "CAUSAL_LM", {"task_type", "peft_type"}),
          key("autocast_adapter_dtype", "adapters are fp32"),
          key("bnb_4bit_compute_dtype", "dtype is used"),
          key("bnb_4bit_quant_storage", "uint8, as bitsandbytes has it",
              {"bnb_4bit_quant_storage_dtype"}),
          key("quant_method", "bitsandbytes' tables and layout are used", {"quantization_method"}),
          key("use_mps_device", own_loop),
          key("accelerator_config", own_loop),
          key("compute_environment", own_loop, {"main_training_function"}),
          key("distributed_type", "zero_stage decides"),
          key("eval_accumulation_steps", "evaluation keeps no logits", {"eval_do_concat_batches"}),
          key("strict", "unknown keys are always errors"),
          key("lora_on_cpu", "the merge is mgpu-train merge"),
          key("bf16_full_eval", "evaluation computes in dtype", {"fp16_full_eval"}),
          key("include_for_metrics", "evaluation measures the loss",
              {"batch_eval_metrics", "include_inputs_for_metrics", "label_names",
               "eval_use_gather_object", "skip_memory_metrics"}),
          key("dataloader_in_order", loader,
              {"dataloader_multiprocessing_context", "split_batches", "dispatch_batches"}),
          key("restore_callback_states_from_checkpoint", own_loop),
          key("ignore_bias_buffers", own_loop),
          key("half_precision_backend", "dtype decides",
              {"fp16_backend", "fp16_opt_level", "use_ipex", "jit_mode_eval"}),
          key("past_index", own_loop, {"ray_scope", "mp_parameters", "torchdynamo"}),
          key("project", "report_to: tensorboard and wandb are written",
              {"trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"}),
      },
      KeyUse::noted);
}

std::vector<KeySpec> refused_keys() {
  const std::string code = "code from a checkpoint is never run; a supported model needs none";
  const std::string zero = "use zero_stage: 3";
  const std::string convert = "make JSONL rows of it first; dataset_name names the file";
  const std::string moe = "mixtures of experts are not supported";
  const std::string one_way = "models are split by zero_stage: 3 only";
  const std::string noise = "noise on embeddings is not supported; leave it out";
  return marked(
      {
          key("trust_remote_code", code, {"trust_remote"}),
          key("fsdp", zero, {"fsdp_config", "fsdp_transformer_layer_cls_to_wrap", "fsdp_version"}),
          key("use_dora", "DoRA is not supported; use_rslora: true is",
              {"lora_use_dora", "peft_use_dora"}),
          key("load_in_8bit", "8-bit weights are not supported; load_in_4bit: true is"),
          key("neftune_noise_alpha", noise, {"neftune_alpha"}),
          unless({"0.0"},
                 key("label_smoothing_factor", "label smoothing is not supported; leave it out")),
          unless({"0.0"},
                 key("router_aux_loss_coef", moe, {"output_router_logits", "moe_aux_loss_coef"})),
          key("freeze_llm",
              "training only new embeddings is not supported; lora_modules_to_save is "
              "nearest"),
          key("unfrozen_parameters", "use LoRA: lora_target_modules",
              {"freeze_trainable_layers", "freeze_parts"}),
          key("train_from_scratch", "use model_size and tokenizer_path"),
          key("formatting_func", "use prompt_template"),
          key("dataset_config", "subsets are a Hub's; " + convert,
              {"dataset_config_name", "subset"}),
          key("sid_index_path", convert),
          key("item_meta_path", convert),
          key("category", convert),
          unless({"-1"}, key("sample", "shorten the file, or use max_steps",
                             {"max_samples", "max_train_samples"})),
          key("special_tokens", "use new_tokens, or set them in tokenizer_config.json"),
          key("eos_token", "set it in tokenizer_config.json", {"bos_token"}),
          unless({"keep_start"}, key("truncation_mode", "rows are cut at their end: keep_start")),
          key("push_to_hub", "nothing is uploaded; `hf upload` sends output_dir",
              {"push_to_hub_model_id"}),
          unless({"true", "True"},
                 key("average_tokens_across_devices", "use gradient_aggregation: mean")),
          unless({"true", "True"},
                 key("init_lora_weights", "A is random and B zero, as true means")),
          key("lora_bias", "biases are not trained; bias: none", {"bias"}),
          key("rank_pattern", "one rank for all layers: lora_r", {"alpha_pattern"}),
          key("layers_to_transform", "all layers get an adapter", {"lora_layers_to_transform"}),
          key("lora_target_parameters", "adapters are for layers: lora_target_modules"),
          key("parallelism_config", one_way),
          key("eval_delay", "evaluations begin with the first eval_steps; leave it out"),
          key("loraplus_lr_ratio", "one rate for all: learning_rate"),
          key("use_galore", "use optim: adamw_8bit",
              {"optim_target_modules", "use_badam", "use_apollo"}),
          key("optim_args", "use adam_beta1, adam_beta2, adam_epsilon, weight_decay"),
          key("adafactor", "use optim: adamw_8bit"),
          unless({"1"}, key("tensor_parallel_size", one_way,
                            {"context_parallel_size", "sequence_parallel_size",
                             "pipeline_parallel_size"})),
          key("fp8", "use dtype: bf16", {"torchao"}),
          key("deepspeed_offload", "nothing is offloaded; use zero_stage: 3 or load_in_4bit",
              {"cpu_offload", "offload_optimizer", "offload_param"}),
          key("length_column_name", "lengths are counted, not read"),
          key("relora_steps", "not supported; leave it out", {"relora"}),
      },
      KeyUse::refused);
}

}  // namespace mgpu::train
