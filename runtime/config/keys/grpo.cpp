// The keys of GRPO. They are checked by type here and read by the GRPO task.

#include <initializer_list>

#include "rendezvous/base/limits.hpp"
#include "runtime/config/grpo_choices.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using Aliases = std::initializer_list<std::string>;

// Sets no member: a value of the right type is kept as text.
template <class To>
Field typed(std::string value, To to) {
  return {.value = std::move(value), .set = [to](TrainConfig&, const YamlNode& v) { to(v); }};
}

KeySpec key(std::string name, Field field, std::string initial, std::string help, Aliases aliases) {
  return {.name = std::move(name),
          .aliases = aliases,
          .field = std::move(field),
          .help = std::move(help),
          .initial = std::move(initial)};
}

KeySpec flag(std::string name, std::string initial, std::string help, Aliases aliases = {}) {
  return key(std::move(name), typed("true|false", to_flag), std::move(initial), std::move(help),
             aliases);
}

KeySpec number(std::string name, std::string initial, std::string help, Aliases aliases = {}) {
  return key(std::move(name), typed("NUMBER", to_number), std::move(initial), std::move(help),
             aliases);
}

KeySpec whole(std::string name, std::string initial, std::string help, Aliases aliases = {}) {
  return key(std::move(name), typed("N", to_whole), std::move(initial), std::move(help), aliases);
}

// The same with a range.
KeySpec number(std::string name, Range range, std::string initial, std::string help,
               Aliases aliases = {}) {
  const auto to = [range](const YamlNode& v) { range.check(to_number(v)); };
  return key(std::move(name), typed("NUMBER", to), std::move(initial), std::move(help), aliases);
}

KeySpec whole(std::string name, Range range, std::string initial, std::string help,
              Aliases aliases = {}) {
  const auto to = [range](const YamlNode& v) { range.check(static_cast<double>(to_whole(v))); };
  return key(std::move(name), typed("N", to), std::move(initial), std::move(help), aliases);
}

template <class Value>
KeySpec one_of(std::string name, const Choices<Value>& choices, std::string initial,
               std::string help) {
  std::string listed;
  for (const auto& [one, meant] : choices)
    if (one == choice_name(meant, choices)) listed += (listed.empty() ? "" : "|") + one;
  const auto to = [choices](const YamlNode& v) { choose(v, choices); };
  return key(std::move(name), typed(std::move(listed), to), std::move(initial), std::move(help),
             {});
}

KeySpec text(std::string name, std::string initial, std::string help, Aliases aliases = {}) {
  return key(std::move(name), typed("TEXT", to_text), std::move(initial), std::move(help), aliases);
}

KeySpec words(std::string name, std::string initial, std::string help, Aliases aliases = {}) {
  return key(std::move(name), typed("LIST", to_words), std::move(initial), std::move(help),
             aliases);
}

KeySpec any(std::string name, std::string initial, std::string help, Aliases aliases = {}) {
  return key(std::move(name), typed("VALUE", [](const YamlNode&) {}), std::move(initial),
             std::move(help), aliases);
}

}  // namespace

std::vector<KeySpec> grpo_keys() {
  return {
      words("reward_funcs", "",
            "rewards, see [rewards.md](rewards.md): built-in names, rules, files, programs, URLs, "
            "models",
            {"reward_functions", "rewards"}),
      text("reward_model", "",
           "a reward model in addition to reward_funcs: its folder, or the name of a model of the "
           "Hub",
           {"reward_model_path", "reward_model_name_or_path"}),
      any("reward_weights", "1 for each", "weight of each reward"),
      text("reward_type", "",
           "MiniOneRec's name for reward_funcs: rule, ranking (rule and ndcg_rule), ranking_only "
           "(ndcg_rule) or semantic, with the settings of its loss, see "
           "[rewards.md](rewards.md#recommendations)"),
      text("info_file", "",
           "items that completions may name, nothing else is generated: lines \"name <tab> title "
           "<tab> id\", or .json; see [grpo.md](grpo.md#recommenders)"),
      text("ada_path", "", "embeddings of the items of info_file for the reward semantic: .npy"),
      text("cf_path", "", "no effect: reward_type: sasrec is not supported"),
      whole("num_generations", between(2, 1e6), "8",
            "completions per prompt (the group size); at least 2",
            {"group_size", "num_generations_per_prompt"}),
      whole("num_generations_eval", at_least(1), "same as num_generations",
            "completions per prompt during evaluation"),
      whole("micro_batch_tokens", at_least(0), "0",
            "divides a rank's completions into micro-batches of at most this many tokens, prompts "
            "included, instead of per_device_train_batch_size completions; 0: off; "
            "see [grpo.md](grpo.md#micro-batches-by-tokens)",
            {"ppo_max_token_len_per_gpu", "max_tokens_per_gpu", "train_max_tokens_per_gpu"}),
      flag("use_dynamic_bsz", "",
           "true requires micro_batch_tokens, which alone has the same effect",
           {"use_dynamic_batch_size", "use_dynamic_batch"}),
      whole("max_completion_length", at_least(1), "512", "maximum tokens of a completion",
            {"max_new_tokens"}),
      whole("max_prompt_length", "",
            "maximum tokens of a prompt; longer prompts are handled by on_bad_row, never cut"),
      text("system_prompt", "", "system message of every prompt whose row has none"),
      text("dataset_prompt_column", "",
           "column with the user's message, or with a list of messages; without this key: prompt "
           "(a text is used as it is), problem or question"),
      number("beta", at_least(0), "0",
             "weight of the KL divergence from the reference model; 0: no reference model",
             {"kl_coef"}),
      number("target_kl", above(0), "",
             "adapts beta to keep the divergence near this value: x 1.5 above twice the target, x "
             "0.5 below half of it"),
      number("epsilon", at_least(0), "0.2", "clip range of the importance ratio",
             {"epsilon_low", "clip_eps"}),
      number("epsilon_high", at_least(0), "same as epsilon",
             "upper clip range of the ratio; with loss_type: cispo the upper bound of the ratio"),
      number("delta", above(0), "", "upper bound of the unclipped ratio"),
      number("temperature", "1", "sampling temperature; above 0"),
      number("top_p", "1",
             "samples from the most likely tokens with this total probability; 1: all tokens"),
      whole("top_k", "0", "samples from this many most likely tokens; 0: all tokens"),
      number("min_p", "",
             "excludes tokens below this fraction of the most likely token's probability"),
      number("repetition_penalty", "1", "above 1: makes tokens that already occurred less likely"),
      any("generation_kwargs", "",
          "more sampling options: {stop: [TEXT, ...]}; with a server, any of its request fields"),
      flag("beam_search", "false",
           "completions are the num_generations best beams, the best first, instead of samples"),
      flag("dynamic_sampling", "false",
           "samples half more completions of each prompt, and keeps hits and different ones"),
      flag("add_gt", "false",
           "replaces the last completion of each group by the item to find; requires info_file"),
      flag("sample_train", "false",
           "leaves a fifth of the training rows out if model_name_or_path contains sft"),
      flag("test_during_training", "false",
           "evaluates with test_beam beams of each row, also after the last step: HR@k, NDCG@k"),
      whole("test_beam", between(1, 1e6), "20", "beams of such an evaluation; at most all items"),
      whole("num_iterations", between(1, 1e6), "1",
            "number of training passes over each generation", {"gspo_epochs", "grpo_epochs"}),
      whole("steps_per_generation", between(1, 1e6), "same as gradient_accumulation_steps",
            "micro-batches of one device per generation"),
      whole("generation_batch_size", between(1, 1e9), "",
            "completions per generation over all ranks"),
      one_of("loss_type", loss_types(), "dapo",
             "loss, see [grpo.md](grpo.md#losses); with task sft only nll"),
      flag("dapo", "false", "MiniOneRec's name for loss_type: dapo"),
      flag("gspo", "false",
           "MiniOneRec's name for importance_sampling_level: sequence and loss_type: grpo"),
      one_of("loss_normalization", loss_normalizations(), "window",
             "divisor of dapo, cispo and vespo: window: the tokens of the step; trl: as in TRL, of "
             "the generation"),
      one_of("importance_sampling_level", importance_levels(), "token",
             "importance ratio per token or per sequence; sequence is GSPO"),
      one_of("scale_rewards", reward_scales(), "group",
             "divides advantages by the standard deviation of the group or of the batch, or not at "
             "all"),
      one_of("multi_objective_aggregation", reward_aggregations(), "sum_then_normalize",
             "order in which several rewards are summed and normalized"),
      flag("mask_truncated_completions", "false",
           "excludes completions that were cut at max_completion_length from the loss"),
      flag("mask_all_zero", "false", "no effect, as in MiniOneRec"),
      flag("sync_ref_model", "false", "moves the reference model towards the policy"),
      number("ref_model_mixup_alpha", between(0, 1), "0.6",
             "share of the policy in each update of the reference model"),
      whole("ref_model_sync_steps", at_least(1), "512",
            "optimizer steps between updates of the reference model"),
      number("top_entropy_quantile", Range{.least = 0, .most = 1, .above = true}, "1",
             "trains only on this fraction of tokens with the highest entropy; 1: all"),
      number("entropy_coef", "0", "weight of the entropy bonus", {"entropy"}),
      number("entropy_coef_min", "0", "lower bound of the adaptive entropy_coef"),
      number("entropy_coef_max", "1", "upper bound of the adaptive entropy_coef"),
      number("entropy_coef_delta", "0.005", "change of the adaptive entropy_coef per step"),
      number("entropy_target", "0.2", "entropy that the adaptive entropy_coef aims for"),
      flag("use_adaptive_entropy", "false", "adapts entropy_coef after each step"),
      flag("use_vllm", "false",
           "true with the address of a server, or with vllm_mode: server: a vLLM server generates; "
           "otherwise the built-in engine does"),
      one_of("vllm_mode", vllm_modes(), "colocate",
             "what generates with use_vllm: true: the built-in engine (colocate) or a server that "
             "you start; without it a server if vllm_server_host, vllm_server_port or "
             "vllm_server_base_url is set"),
      text("vllm_server_host", "0.0.0.0", "host of the server; 0.0.0.0: this host"),
      whole("vllm_server_port", between(1, rendezvous::kLastPort), "8000", "port of the server"),
      text("vllm_server_base_url", "",
           "address of the server instead of host and port: http(s)://HOST:PORT"),
      number("vllm_server_timeout", above(0), "240", "seconds to wait for the server to come up"),
      whole("vllm_group_port", between(1, rendezvous::kLastPort), "51216",
            "port that rank 0 opens while the server's workers connect to receive all weights"),
      number("vllm_gpu_memory_utilization", "0.3", "no effect: set it when you start the server"),
      whole("vllm_tensor_parallel_size", "1", "no effect: set it when you start the server"),
      whole("vllm_max_model_length", "", "no effect: set it when you start the server",
            {"vllm_max_model_len"}),
      flag("vllm_enable_sleep_mode", "false", "no effect: set it when you start the server"),
      text("vllm_model_impl", "vllm", "no effect: set it when you start the server"),
      text("vllm_structured_outputs_regex", "", "pattern of the completions; only with a server",
           {"vllm_guided_decoding_regex"}),
      text("vllm_device", "", "no effect: set it when you start the server (older TRL)"),
      text("vllm_dtype", "", "no effect: set it when you start the server (older TRL)"),
      flag("vllm_importance_sampling_correction", "true",
           "corrects for numerical differences between server and trainer; between the built-in "
           "engine and the trainer only if the recipe sets it"),
      one_of("vllm_importance_sampling_mode", sampler_corrections(), "sequence_mask",
             "how the ratio of trainer to sampler probability is limited: truncated or masked, per "
             "token or per sequence"),
      number("vllm_importance_sampling_clip_max", above(0), "3", "upper bound of that ratio",
             {"vllm_importance_sampling_cap"}),
      number("vllm_importance_sampling_clip_min", at_least(0), "", "lower bound of that ratio"),
      number("off_policy_mask_threshold", "", "masks completions that are too far from the policy"),
      flag("use_bias_correction_kl", "true", "weights the KL divergence by the importance ratio"),
      number("sapo_temperature_pos", above(0), "1",
             "loss_type: sapo: temperature for positive advantages"),
      number("sapo_temperature_neg", above(0), "1.05",
             "loss_type: sapo: temperature for the other advantages"),
      number("vespo_k_pos", "2", "loss_type: vespo: k for advantages of 0 or more"),
      number("vespo_lambda_pos", "3", "loss_type: vespo: lambda for advantages of 0 or more"),
      number("vespo_k_neg", "3", "loss_type: vespo: k for negative advantages"),
      number("vespo_lambda_neg", "2", "loss_type: vespo: lambda for negative advantages"),
      flag("cast_lm_head_to_fp32", "false",
           "does not round the logits to the model's dtype, in training, scoring and the built-in "
           "engine"),
      flag("disable_dropout", "false", "disables dropout in the policy"),
      flag("log_completions", "false", "writes all completions to files in output_dir/completions"),
      whole("num_completions_to_print", "",
            "completions to print per log line with log_completions; 4 if not set"),
      flag("log_unique_prompts", "false", "no effect: all completions are logged",
           {"wandb_log_unique_prompts"}),
      text("log_completions_hub_repo", "", "no effect: nothing is uploaded"),
      flag("log_multimodal", "true", "no effect: completions are text"),
      flag("ds3_gather_for_generation", "true",
           "no effect: sharded weights are always gathered for generation"),
      any("chat_template_kwargs", "",
          "variables for the chat template, such as {enable_thinking: false}"),
      text("cache_implementation", "", "no effect: the engine has one kind of KV cache"),
      any("max_tool_calling_iterations", "", "not supported: completions call no tools"),
      flag("use_transformers_continuous_batching", "false",
           "no effect: the engine always batches continuously", {"use_transformers_paged"}),
      any("transformers_continuous_batching_config", "",
          "no effect: the engine always batches continuously"),
      flag("skip_zero_advantage_batches", "false",
           "leaves completions whose advantage is 0 out of the backward pass"),
      flag("async_prefetch", "false", "no effect: a step trains on completions of its own weights"),
      whole("vllm_sync_interval", "", "no effect: weights are sent whenever they have changed"),
      flag("vllm_lora_sync", "false",
           "no effect: if an adapter is trained, only the adapter is sent"),
      whole("replay_buffer_size", "0", "not supported"),
      number("cosine_min_value_wrong", "0",
             "cosine reward: minimum of a wrong answer; -1 for TRL's variant"),
      number("cosine_max_value_wrong", "-0.5", "cosine reward: maximum of a wrong answer"),
      number("cosine_min_value_correct", "0.5", "cosine reward: minimum of a correct answer"),
      number("cosine_max_value_correct", "1", "cosine reward: maximum of a correct answer"),
      whole("cosine_max_len", "1000", "cosine reward: length at which the cosine ends"),
      whole("repetition_n_grams", "3", "repetition reward: size of the n-grams"),
      number("repetition_max_penalty", "-1", "repetition reward: largest penalty"),
      whole("max_completion_len", "16384",
            "soft overlong reward: tokens of the largest penalty; 1280 for TRL's variant"),
      whole(
          "soft_punish_cache", "4096",
          "soft overlong reward: last tokens over which the penalty grows; 256 for TRL's variant"),
      text("length_scope", "group", "length reward: compares within the group or the batch"),
      any("reward_rules", "", "rewards by patterns and JSON paths: {NAME: {regex: PATTERN}}"),
      words("reasoning_delimiters", "</think>",
            "reasoning_accuracy_reward: texts that end the reasoning"),
      text("reward_on_error", "stop",
           "what a failing reward does: stop the run, or count as none (does not apply)"),
      number("reward_timeout", "10", "seconds per completion for rewards outside of this program"),
      whole("reward_concurrency", "8 for servers, 1 for others",
            "groups that a rank lets each reward outside of this program score at a time: requests "
            "to a server, processes of a program or Python function"),
      text("reward_python", "python3", "Python interpreter that runs reward files"),
      flag("reward_sandbox", "false",
           "runs Python functions and programs of rewards in a sandbox: no network, read-only "
           "files, see [rewards.md](rewards.md#sandbox)"),
      key("policy_gpus", typed("LIST", to_gpus), "0, 1, ...",
          "GPUs that train the policy; rank i uses the i-th", {"policy_gpu_ids"}),
      whole("reference_gpu", between(0, 1023), "sharded over all ranks",
            "puts the whole reference model on this GPU", {"reference_gpu_id"}),
      whole("reward_gpu", between(0, 1023), "sharded over all ranks",
            "puts reward models, whole, on this GPU", {"reward_gpu_id"}),
  };
}

}  // namespace mgpu::train
