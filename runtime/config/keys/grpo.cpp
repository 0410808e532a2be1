// The table's part about GRPO. These keys are checked by type here and read by the GRPO task.

#include <initializer_list>

#include "runtime/config/grpo_choices.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using Aliases = std::initializer_list<std::string>;

// Sets nothing: a value of the right type is kept as text.
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

// The same within a range.
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
KeySpec one_of(std::string name, const Words<Value>& words, std::string initial, std::string help) {
  std::string listed;
  for (const auto& [word, meant] : words)
    if (word == word_for(meant, words)) listed += (listed.empty() ? "" : "|") + word;
  const auto to = [words](const YamlNode& v) { choose(v, words); };
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
      words("reward_funcs", "", "names of reward functions", {"reward_functions", "rewards"}),
      any("reward_weights", "1 each", "how much each counts"),
      text("reward_type", "", "not supported: name rule or ranking in reward_funcs"),
      whole("num_generations", between(2, 1e6), "8", "completions of a prompt",
            {"group_size", "num_generations_per_prompt"}),
      whole("num_generations_eval", at_least(1), "as num_generations", "the same when evaluating"),
      whole("max_completion_length", at_least(1), "512", "tokens of a completion",
            {"max_new_tokens"}),
      whole("max_prompt_length", "", "tokens of a prompt"),
      text("system_prompt", "", "the system message of every prompt"),
      text("dataset_prompt_column", "prompt", "the column of the prompt"),
      number("beta", at_least(0), "0", "weight of the divergence from the reference", {"kl_coef"}),
      number("target_kl", above(0), "",
             "keeps the divergence near this: beta x 1.5 above twice, x 0.5 below half of it"),
      number("epsilon", at_least(0), "0.2", "clip range of the ratio", {"epsilon_low", "clip_eps"}),
      number("epsilon_high", at_least(0), "as epsilon",
             "its upper side; for cispo the ratio's bound"),
      number("delta", above(0), "", "upper bound of the unclipped ratio"),
      number("temperature", "1", "of sampling"),
      number("top_p", "1", "of sampling"),
      whole("top_k", "0", "of sampling; 0: all"),
      number("min_p", "", "of sampling"),
      number("repetition_penalty", "1", "of sampling"),
      any("generation_kwargs", "", "more of sampling"),
      flag("beam_search", "false", "not supported: completions are sampled"),
      whole("num_iterations", between(1, 1e6), "1", "times a batch of completions is learnt from",
            {"gspo_epochs", "grpo_epochs"}),
      whole("steps_per_generation", between(1, 1e6), "as gradient_accumulation_steps",
            "micro-batches of a device that are generated at a time"),
      whole("generation_batch_size", between(1, 1e9), "",
            "completions of all ranks generated at a time"),
      one_of("loss_type", loss_types(), "dapo", "how tokens' losses become one; for sft only nll"),
      one_of("loss_normalization", loss_normalizations(), "window",
             "dapo, cispo, vespo: divide by the step's tokens, or as TRL by the generation's"),
      one_of("importance_sampling_level", importance_levels(), "token",
             "whose ratio counts; sequence is GSPO's"),
      one_of("scale_rewards", reward_scales(), "group",
             "whose deviation advantages are divided by"),
      one_of("multi_objective_aggregation", reward_aggregations(), "sum_then_normalize",
             "how rewards become one"),
      flag("mask_truncated_completions", "false", "completions that were cut do not count"),
      flag("sync_ref_model", "false", "moves the reference towards the policy"),
      number("ref_model_mixup_alpha", between(0, 1), "0.6", "how far: the policy's share"),
      whole("ref_model_sync_steps", at_least(1), "512", "how often, in steps"),
      number("top_entropy_quantile", Range{.least = 0, .most = 1, .above = true}, "1",
             "only the most uncertain tokens count"),
      number("entropy_coef", "0", "weight of the entropy", {"entropy"}),
      number("entropy_coef_min", "0", "its least"),
      number("entropy_coef_max", "1", "its most"),
      number("entropy_coef_delta", "0.005", "its step"),
      number("entropy_target", "0.2", "what it is moved to"),
      flag("use_adaptive_entropy", "false", "moves it"),
      flag("use_vllm", "false", "with vllm_mode: server a server generates; else we do"),
      one_of("vllm_mode", vllm_modes(), "colocate",
             "who generates with use_vllm: we, or a server that you run"),
      text("vllm_server_host", "0.0.0.0", "its host; 0.0.0.0: this one"),
      whole("vllm_server_port", between(1, 65535), "8000", "its port"),
      text("vllm_server_base_url", "", "its address, instead of the two: http://HOST:PORT"),
      number("vllm_server_timeout", above(0), "240", "seconds to wait until it is up"),
      whole("vllm_group_port", between(1, 65535), "51216", "port at which we send it all weights"),
      number("vllm_gpu_memory_utilization", "0.3", "of the server"),
      whole("vllm_tensor_parallel_size", "1", "of the server"),
      whole("vllm_max_model_length", "", "of the server", {"vllm_max_model_len"}),
      flag("vllm_enable_sleep_mode", "false", "of the server"),
      text("vllm_model_impl", "vllm", "of the server"),
      text("vllm_structured_outputs_regex", "", "what completions of a server look like",
           {"vllm_guided_decoding_regex"}),
      text("vllm_device", "", "of the server, in older files"),
      text("vllm_dtype", "", "of the server, in older files"),
      flag("vllm_importance_sampling_correction", "true", "corrects for the server's numerics"),
      one_of("vllm_importance_sampling_mode", sampler_corrections(), "sequence_mask",
             "what of the ratio to the server is cut off"),
      number("vllm_importance_sampling_clip_max", above(0), "3", "its bound",
             {"vllm_importance_sampling_cap"}),
      number("vllm_importance_sampling_clip_min", at_least(0), "", "its bound"),
      number("off_policy_mask_threshold", "", "masks completions too far from the policy"),
      flag("use_bias_correction_kl", "true", "weighs the divergence by the ratio"),
      number("sapo_temperature_pos", above(0), "1", "of loss_type: sapo"),
      number("sapo_temperature_neg", above(0), "1.05", "of loss_type: sapo"),
      number("vespo_k_pos", "2", "of loss_type: vespo"),
      number("vespo_lambda_pos", "3", "of loss_type: vespo"),
      number("vespo_k_neg", "3", "of loss_type: vespo"),
      number("vespo_lambda_neg", "2", "of loss_type: vespo"),
      flag("cast_lm_head_to_fp32", "false", "logits in fp32"),
      flag("disable_dropout", "false", "no dropout in the policy"),
      flag("log_completions", "false", "writes completions to files"),
      whole("num_completions_to_print", "", "how many are shown"),
      flag("log_unique_prompts", "false", "each prompt once", {"wandb_log_unique_prompts"}),
      text("log_completions_hub_repo", "", "not used: nothing is uploaded"),
      flag("log_multimodal", "true", "of no use with text"),
      flag("ds3_gather_for_generation", "true", "gathers sharded weights to generate"),
      any("chat_template_kwargs", "", "for the chat template, such as {enable_thinking: false}"),
      text("cache_implementation", "", "of the generator"),
      any("max_tool_calling_iterations", "", "calls of tools in a completion"),
      flag("use_transformers_continuous_batching", "false", "of the generator",
           {"use_transformers_paged"}),
      any("transformers_continuous_batching_config", "", "of the generator"),
      flag("skip_zero_advantage_batches", "false",
           "micro-batches without any advantage are not computed"),
      flag("async_prefetch", "false", "generates ahead"),
      whole("vllm_sync_interval", "", "no effect: weights are sent when they have changed"),
      flag("vllm_lora_sync", "false", "no effect: an adapter is sent alone"),
      whole("replay_buffer_size", "0", "not supported"),
      number("cosine_min_value_wrong", "0", "of the cosine reward; -1 of TRL's"),
      number("cosine_max_value_wrong", "-0.5", "of the cosine reward"),
      number("cosine_min_value_correct", "0.5", "of the cosine reward"),
      number("cosine_max_value_correct", "1", "of the cosine reward"),
      whole("cosine_max_len", "1000", "of the cosine reward"),
      whole("repetition_n_grams", "3", "of the repetition reward"),
      number("repetition_max_penalty", "-1", "of the repetition reward"),
      whole("max_completion_len", "16384", "of the soft overlong reward; 1280 of TRL's"),
      whole("soft_punish_cache", "4096", "of the soft overlong reward; 256 of TRL's"),
      text("length_scope", "group", "of the length reward: group or batch"),
      any("reward_rules", "", "rewards by patterns and JSON paths: {NAME: {regex: PATTERN}}"),
      words("reasoning_delimiters", "</think>", "end the reasoning: of reasoning_accuracy_reward"),
      text("reward_on_error", "stop", "stop or none: what a reward that fails does"),
      number("reward_timeout", "10", "seconds a completion may take in a reward outside of us"),
      text("reward_python", "python3", "runs files of rewards"),
      key("policy_gpus", typed("LIST", to_gpus), "0, 1, ...", "rank i learns on the i-th of them",
          {"policy_gpu_ids"}),
      whole("reference_gpu", between(0, 1023), "all of them",
            "one rank has the reference, whole, on this GPU", {"reference_gpu_id"}),
      whole("reward_gpu", between(0, 1023), "all of them",
            "the same of reward_funcs that are models", {"reward_gpu_id"}),
  };
}

}  // namespace mgpu::train
