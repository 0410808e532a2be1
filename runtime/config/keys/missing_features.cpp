// Keys of other trainers that name a feature which this program lacks. A recipe with one of them is
// refused in a line that names the feature.

#include <initializer_list>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

KeySpec lacking(std::string feature, std::initializer_list<std::string> names,
                std::vector<std::string> harmless = {}) {
  KeySpec spec{.name = *names.begin(),
               .aliases = {names.begin() + 1, names.end()},
               .instead = feature + ": not supported",
               .feature = std::move(feature),
               .harmless = std::move(harmless),
               .use = KeyUse::refused};
  return spec;
}

}  // namespace

std::vector<KeySpec> missing_keys() {
  const std::string media = "training on images, audio or video";
  const std::string experts = "training of mixture-of-experts models";
  const std::string preferences = "training on preferences (DPO, ORPO, KTO)";
  const std::string reward = "training of reward models and classifiers";
  const std::string pruning = "sparse or quantization-aware training";
  const std::string megatron = "Megatron's parallelism";
  const std::string version_1 = "the format of LLaMA-Factory's version 1";
  const std::string exports = "exporting by a recipe (mgpu-train merge FOLDER does it)";
  const std::string chat = "chatting by a recipe (mgpu-train generate does it)";
  const std::string codes = "running generated code";
  return {
      lacking(media,
              {"processor_type", "image_max_pixels", "video_max_pixels", "video_fps",
               "video_maxlen", "image_size", "image_resize_algorithm", "freeze_vision_tower",
               "freeze_multi_modal_projector", "freeze_language_model", "freeze_mm_modules"}),
      lacking(experts,
              {"quantize_moe_experts", "use_scattermoe", "use_sonicmoe", "experts_implementation",
               "expert_parallel_size", "expert_model_parallel_size", "llama4_linearized_experts",
               "expert_parallel_num_nvl_bytes", "expert_parallel_token_capacity",
               "moe_grouped_gemm", "moe_token_dispatcher_type", "use_kt", "kt_config",
               "kt_weight_path", "kt_non_expert_weight_path", "kt_cpu_activation",
               "use_dsv4_kernels", "dsv4_fp4_grouped_mode", "use_glm_dsa_kernels"},
              {"1"}),
      lacking(preferences, {"pref_beta", "pref_loss", "pref_ftx", "rl_beta", "orpo_alpha",
                            "kto_desirable_weight", "kto_undesirable_weight", "dpo_beta",
                            "simpo_gamma", "cpo_alpha", "dataset_mixer"}),
      lacking(reward, {"num_labels", "process_reward_model", "center_rewards_coefficient",
                       "cls_model_config"}),
      lacking(pruning,
              {"qat", "llmcompressor", "use_onebitllms", "nvfp4_merge_aware", "reinit_weights"}),
      lacking("the settings of torchao", {"torchao"}),
      lacking("the GPTQ, AWQ or FP4 weights of model_quantization_config",
              {"model_quantization_config", "model_quantization_config_kwargs", "gptq",
               "gptq_disable_exllama", "gptq_groupsize", "gptq_model_v1"}),
      lacking("energy-based fine-tuning (EBFT)", {"ebft"}),
      lacking("diffusion language modelling", {"diffusion"}),
      lacking("orthogonal fine-tuning (OFT)", {"oft_block_size", "oft_target", "oft_rank"}),
      lacking("ReLoRA", {"relora_steps", "relora", "relora_prune_ratio", "relora_cpu_offload",
                         "jagged_restart_steps", "jagged_restart_warmup_steps",
                         "jagged_restart_anneal_steps"}),
      lacking("LISA", {"lisa_n_layers", "lisa_step_interval", "lisa_layers_attribute"}),
      lacking("LoftQ", {"peft", "loftq_config"}),
      lacking("training of added blocks (LLaMA Pro)", {"use_llama_pro"}),
      lacking("mixture-of-depths", {"mixture_of_depths"}),
      lacking("the optimizer GaLore",
              {"use_galore", "galore_layerwise", "galore_target", "galore_rank", "galore_scale",
               "galore_update_interval", "optim_target_modules"}),
      lacking("the optimizer APOLLO", {"use_apollo", "apollo_layerwise", "apollo_target",
                                       "apollo_rank", "apollo_scale", "apollo_scale_type"}),
      lacking("the optimizer BAdam", {"use_badam", "badam_mode", "badam_switch_mode",
                                      "badam_switch_interval", "badam_verbose"}),
      lacking("the optimizer Adam-mini", {"use_adam_mini"}),
      lacking("the optimizer Muon", {"use_muon"}),
      lacking("the loss DFT", {"use_dft_loss"}),
      lacking("the loss ASFT", {"use_asft_loss", "asft_alpha"}),
      lacking("the loss EAFT", {"use_eaft_loss", "use_eaft", "eaft_alpha", "eaft_k"}),
      lacking(megatron,
              {"tensor_model_parallel_size", "pipeline_model_parallel_size", "sequence_parallel",
               "use_distributed_optimizer", "overlap_param_gather", "overlap_grad_reduce",
               "bias_activation_fusion", "apply_rope_fusion", "use_packed_sequences",
               "export_hf_on_finish"},
              {"1"}),
      lacking("tensor parallelism (zero_stage 3 splits a model over GPUs)",
              {"tensor_parallel_size"}, {"1"}),
      lacking("context parallelism (zero_stage 3 splits a model over GPUs)",
              {"context_parallel_size", "sequence_parallel_size"}, {"1"}),
      lacking("pipeline parallelism (zero_stage 3 splits a model over GPUs)",
              {"pipeline_parallel_size"}, {"1"}),
      lacking("sharding within groups of ranks (zero_stage 3 shards over all ranks)",
              {"dp_shard_size", "dp_replicate_size"}, {"1"}),
      lacking(version_1,
              {"model_class", "dist_config", "kernel_config", "sample_backend", "init_config",
               "optim_config", "quant_config", "batching_strategy", "cp_mode", "cp_size",
               "use_v1_kernels"},
              {"1"}),
      lacking(exports,
              {"export_dir", "export_size", "export_device", "export_legacy_format",
               "export_quantization_bit", "export_quantization_dataset", "export_hub_model_id"}),
      lacking(chat, {"infer_backend"}),
      lacking("measuring generated text in an evaluation",
              {"do_causal_lm_eval", "eval_causal_lm_metrics", "eval_table_size",
               "eval_max_new_tokens", "benchmarks"}),
      lacking(codes, {"code_language", "code_provider", "code_eval_test_batch_size",
                      "code_eval_scoring_mode", "e2b_router_url", "morph_router_url",
                      "parallel_code_exec_per_proc"}),
      lacking("filtering of a dataset by pass rates", {"pass_rate_min", "pass_rate_max"}),
      lacking("the tokenizers of mistral-common (tekken.json)", {"tokenizer_use_mistral_common"}),
      lacking("computing an MLP in tiles of the sequence", {"tiled_mlp"}),
      lacking("packing of rows that are cut at the end of a sequence",
              {"pretraining_dataset", "pretrain_multipack_attn", "max_packed_sequence_len"}),
      lacking("changing config.json by a recipe", {"model_config"}),
      lacking("a warm-up along a parabola", {"lr_quadratic_warmup"}),
  };
}

}  // namespace mgpu::train
