// Keys and values of axolotl, LLaMA-Factory, open-r1, alignment-handbook and TRL: what they mean
// here, and which features are missing.

#include <algorithm>
#include <fstream>

#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

const std::string kStart = "base_model: m\ndatasets: d.jsonl\n";  // lines 1 and 2

TrainConfig with_lines(const std::string& lines, RecipeOptions options = {}) {
  return parse_recipe(kStart + lines, "f", options);
}

std::vector<std::string> refusals(const std::string& lines, RecipeOptions options = {}) {
  try {
    with_lines(lines, options);
  } catch (const RecipeError& e) {
    return e.lines();
  }
  return {};
}

std::string refusal(const std::string& lines) {
  const auto all = refusals(lines);
  CHECK(all.size() == 1);
  return all.empty() ? "" : all.front();
}

bool notes_have(const TrainConfig& config, const std::string& part) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const auto& note) { return note.find(part) != note.npos; });
}

}  // namespace

TEST_CASE("a chat template is a name, a file or Jinja text", "[other_trainers]") {
  CHECK(with_lines("chat_template: qwen3\n").chat_template == "qwen3");
  CHECK(with_lines("template: llama3\n").chat_template == "llama3");
  CHECK(with_lines("chat_template: chat.jinja\n").chat_template == "chat.jinja");
  CHECK(with_lines("chat_template: '{% for m in messages %}{{ m.content }}{% endfor %}'\n")
            .chat_template.starts_with("{% for"));
  CHECK(with_lines("chat_template: jinja\nchat_template_jinja: chat.jinja\n").chat_template ==
        "chat.jinja");
  CHECK(with_lines("chat_template: tokenizer_default\n").chat_template.empty());
  CHECK(with_lines("chat_template: tokenizer_default_fallback_chatml\n").chat_template ==
        "tokenizer_default_fallback_chatml");
  CHECK(with_lines("default_system: Be brief.\n").default_system_prompt == "Be brief.");
}

TEST_CASE("names of unknown templates are refused with the known ones", "[other_trainers]") {
  CHECK_THAT(refusal("chat_template: gemma\n"),
             Contains("f:3: chat_template: need the name of a template (chatml, llama2, llama3"));
  CHECK_THAT(refusal("template: chatglm3\n"), Contains("not chatglm3"));
  CHECK_THAT(refusal("chat_template: tokenizer_default_fallback_gemma\n"),
             Contains("need the name"));
  CHECK(refusal("chat_template: jinja\n") == "f:3: chat_template: requires chat_template_jinja");
  CHECK(refusal("chat_template: qwen3\ntemplate: llama3\n") ==
        "f:4: template: contradicts chat_template (f:3); keep one");
}

TEST_CASE("special tokens have roles", "[other_trainers]") {
  const auto config = with_lines(
      "special_tokens:\n  eos_token: <|im_end|>\n  pad_token:\n"
      "  additional_special_tokens: ['<tool>', '</tool>']\npad_token: <pad>\n");
  CHECK(config.special_tokens ==
        std::map<std::string, std::string>{{"eos_token", "<|im_end|>"}, {"pad_token", "<pad>"}});
  CHECK(config.new_special_tokens == std::vector<std::string>{"<tool>", "</tool>"});
  CHECK(with_lines("special_tokens:\n").special_tokens.empty());
  CHECK_THAT(refusal("special_tokens: {sep_token: x}\n"), Contains("not sep_token"));
  CHECK_THAT(refusal("special_tokens: {eos_token: a}\neos_token: b\n"),
             Contains("eos_token is a and b; keep one"));
}

TEST_CASE("FSDP is a ZeRO stage", "[other_trainers]") {
  struct Case {
    const char* lines;
    int stage;
  };
  const auto [lines, stage] = GENERATE(values<Case>({
      {"fsdp: full_shard auto_wrap\n", 3},
      {"fsdp: [shard_grad_op, auto_wrap]\n", 2},
      {"fsdp: [no_shard]\n", 0},
      {"fsdp: true\n", 3},
      {"fsdp: [full_shard]\nfsdp_config: {fsdp_transformer_layer_cls_to_wrap: Block}\n", 3},
      {"fsdp: [shard_grad_op]\nfsdp_config: {fsdp_use_orig_params: true}\n", 2},
      {"fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n", 3},
      {"fsdp_version: 2\nfsdp_config: {reshard_after_forward: false}\n", 2},
      {"fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: false}\n", 3},
      {"fsdp_config: {state_dict_type: FULL_STATE_DICT}\n", 3},
      {"fsdp:\nfsdp_config: {}\n", kAutomaticStage},
      {"deepspeed: {distributed_type: FSDP, fsdp_config: {fsdp_sharding_strategy: 2}}\n", 2},
  }));
  CAPTURE(lines);
  const auto config = with_lines(lines);
  CHECK(config.zero_stage == stage);
  if (stage >= 0) CHECK(notes_have(config, "means zero_stage: " + std::to_string(stage)));
}

TEST_CASE("a file of FSDP's keys is read, with its recomputation", "[other_trainers]") {
  const mgpu::tests::TempDir folder;
  const auto file = folder.path("fsdp.json");
  std::ofstream(file) << R"({"activation_checkpointing": true})";
  const auto config = with_lines("fsdp_config: " + file + "\n");
  CHECK(config.zero_stage == 3);
  CHECK(config.gradient_checkpointing == Recompute::full);
}

TEST_CASE("what FSDP does and ZeRO does not is refused", "[other_trainers]") {
  CHECK_THAT(refusal("fsdp: full_shard offload\n"), Contains("there is no offloading"));
  CHECK_THAT(refusal("fsdp_config: {offload_params: true}\n"), Contains("there is no offloading"));
  CHECK_THAT(refusal("fsdp: hybrid_shard\n"),
             Contains("use full_shard, shard_grad_op or no_shard"));
  CHECK_THAT(refusal("fsdp_config: {new_key: 1}\n"), Contains("f:3: new_key: is unknown"));
  CHECK_THAT(refusal("fsdp: full_shard\nzero_stage: 2\n"), Contains("keep one"));
}

TEST_CASE("all linear layers include those that are listed", "[other_trainers]") {
  const auto both = with_lines("lora_target_linear: true\nlora_target_modules: [q_proj]\n");
  CHECK(both.use_peft);
  CHECK(both.lora_target_modules.empty());
  CHECK(with_lines("lora_target_linear: false\nlora_target_modules: [q_proj]\n")
            .lora_target_modules == std::vector<std::string>{"q_proj"});
  CHECK_THAT(refusal("lora_target_linear: false\n"), Contains("false selects no layers"));
  CHECK_THAT(refusal("lora_target_linear: true\nlora_target_modules: [q_proj, lm_head]\n"),
             Contains("lm_head cannot have an adapter"));
}

TEST_CASE("0 evaluations per epoch are none", "[other_trainers]") {
  const auto config = with_lines("evals_per_epoch: 0\nsaves_per_epoch: 0\nval_set_size: 0.1\n");
  CHECK(config.eval_strategy == When::no);
  CHECK(config.save_strategy == When::steps);
  CHECK(notes_have(config, "evals_per_epoch: has no effect"));
}

TEST_CASE("a loss watchdog has a threshold and a patience", "[other_trainers]") {
  const auto config = with_lines("loss_watchdog_threshold: 5.0\nloss_watchdog_patience: 2\n");
  CHECK(config.loss_watchdog_threshold == 5);
  CHECK(config.loss_watchdog_patience == 2);
}

TEST_CASE("the hub keys describe an upload", "[other_trainers]") {
  const auto config = with_lines(
      "push_to_hub: true\nhub_model_id: org/m\nhub_strategy: every_save\nhub_private_repo: true\n"
      "hub_revision: v1\n");
  CHECK(config.push_to_hub);
  CHECK(config.hub_model_id == "org/m");
  CHECK(config.hub_private_repo);
  CHECK(config.hub_revision == "v1");
  CHECK(notes_have(config, "hub_strategy: means end"));
  CHECK_THAT(refusal("push_to_hub: true\nhub_strategy: often\n"), Contains("need one of end"));

  SECTION("a name alone uploads in axolotl's recipes only") {
    CHECK(with_lines("hub_model_id: org/m\n").push_to_hub);
    const auto other =
        parse_recipe("model_name_or_path: m\ndataset_name: d.jsonl\nhub_model_id: x\n", "f");
    CHECK_FALSE(other.push_to_hub);
    CHECK(notes_have(other, "hub_model_id: has no effect without push_to_hub: true"));
  }
}

TEST_CASE("a new start contradicts a checkpoint to resume from", "[other_trainers]") {
  CHECK(with_lines("overwrite_output_dir: true\nresume_from_checkpoint:\n").overwrite_output_dir);
  CHECK(with_lines("overwrite_output_dir: true\nresume_from_checkpoint: false\n")
            .overwrite_output_dir);
  CHECK_THAT(refusal("overwrite_output_dir: true\nresume_from_checkpoint: out/checkpoint-5\n"),
             Contains("starts anew, but resume_from_checkpoint (f:4) resumes; keep one"));
}

TEST_CASE("keys without effect leave a note each, also several of one kind", "[other_trainers]") {
  const auto config = with_lines(
      "trust_remote_code: true\ntorch_compile: true\ntorch_compile_mode: max-autotune\n"
      "plugins: [axolotl.integrations.liger.LigerPlugin]\nmodel_type: LlamaForCausalLM\n"
      "use_swanlab: true\nswanlab_project: p\nray_num_workers: 4\n");
  for (const char* key : {"trust_remote_code", "torch_compile", "torch_compile_mode", "plugins",
                          "model_type", "use_swanlab", "swanlab_project", "ray_num_workers"})
    CHECK(notes_have(config, std::string(key) + ": "));
}

TEST_CASE("a missing feature is named in one line, whatever else is wrong", "[other_trainers]") {
  struct Case {
    const char* lines;
    const char* line;
  };
  const auto [lines, line] = GENERATE(values<Case>({
      {"rl: dpo\nbeta: 0.1\npref_loss: sigmoid\n",
       "f:3: rl: the training method dpo is not supported; nor is training on preferences (DPO, "
       "ORPO, KTO)"},
      {"new_key: 1\nprocessor_type: AutoProcessor\nlora_r: -1\n",
       "f:4: processor_type: training on images, audio or video is not supported"},
      {"adapter: oft\n", "f:3: adapter: the adapter oft is not supported"},
      {"finetuning_type: freeze\n",
       "f:3: finetuning_type: fine-tuning of the kind freeze is not supported"},
      {"model_type: AutoModelForSequenceClassification\n",
       "f:3: model_type: training of reward models and classifiers is not supported"},
      {"plugins: axolotl.integrations.diffusion.DiffusionPlugin\n",
       "f:3: plugins: the plugin DiffusionPlugin is not supported"},
      {"reward_model: true\n",
       "f:3: reward_model: training of reward models and classifiers is not supported"},
      {"beta: 0.1\n", "f:3: beta: training on preferences (DPO) is not supported"},
  }));
  CAPTURE(lines);
  CHECK(refusals(lines) == std::vector<std::string>{line});
}

TEST_CASE("a switched off feature is not missing", "[other_trainers]") {
  CHECK(refusals("use_scattermoe: false\ngptq: false\nfp8: false\ntensor_model_parallel_size: 1\n")
            .empty());
  CHECK(refusals("task: sft\nbeta: 0.1\n").empty());  // GRPO's key, as the recipe states its task
}

TEST_CASE("a recipe that lacks several features gets one line with all of them",
          "[other_trainers]") {
  CHECK(refusal("dp_shard_size: 2\ntensor_parallel_size: 2\ncontext_parallel_size: 1\n") ==
        "f:3: dp_shard_size: sharding within groups of ranks (zero_stage 3 shards over all ranks) "
        "is not supported; nor is tensor parallelism (zero_stage 3 splits a model over GPUs)");
  CHECK(refusal("dataset_dir: REMOTE:me/data\n") ==
        "f:3: dataset_dir: a dataset_info.json on the Hub (REMOTE:NAME) is not supported");
  CHECK_THAT(refusal("task: grpo\nreward_funcs: [format, code]\n"),
             Contains("f:4: reward_funcs: running generated code as the reward code"));
  CHECK_THROWS_WITH(
      parse_recipe("base_model: m\ndatasets:\n- {path: d, type: jeopardy}\ntokens: {a: b}\n", "f"),
      "f:2: datasets: the dataset type jeopardy is not supported");
}

TEST_CASE("a file of another kind gets one line", "[other_trainers]") {
  CHECK_THROWS_WITH(parse_recipe("provider: x\nsecrets: [a]\nvolumes: []\nregion: b\n", "f"),
                    "f:1: not a recipe: none of its keys is known (provider, secrets, volumes, "
                    "...)");
}

TEST_CASE("one precision by two names is on if one of them turns it on", "[other_trainers]") {
  CHECK(with_lines("float16: true\nbf16: false\nfp16: false\n").dtype == Dtype::fp16);
  CHECK(with_lines("bf16: false\nbfloat16: true\n").dtype == Dtype::bf16);
  CHECK_THAT(refusal("fp16: true\nbf16: true\n"), Contains("contradicts"));
}

TEST_CASE("a note states what packing does to rows in order and to texts", "[other_trainers]") {
  CHECK(notes_have(with_lines("sample_packing: true\ncurriculum_sampling: true\n"),
                   "set packing_strategy: sequential to keep the order of rows"));
  CHECK(!notes_have(with_lines("sample_packing: true\ncurriculum_sampling: true\n"
                               "sample_packing_sequentially: true\n"),
                    "packing_strategy"));
  CHECK(with_lines("stage: pt\n").packing);
  CHECK(!with_lines("stage: pt\npacking: false\n").packing);
}

TEST_CASE("axolotl's chat_template has roles without the key roles", "[other_trainers]") {
  const auto config = parse_recipe(
      "base_model: m\ndatasets:\n- {path: d, type: chat_template, roles: {assistant: [bot]}}\n",
      "f");
  const auto& roles = config.dataset_name.at(0).names.roles;
  CHECK(roles.at("human") == "user");
  CHECK(roles.at("gpt") == "assistant");
  CHECK(roles.at("bot") == "assistant");
}
