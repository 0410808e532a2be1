// Recipes of other projects, unchanged.

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

TrainConfig recipe_of_the_sources(const std::string& name) {
  return read_recipe(mgpu::tests::in_sources("tests/runtime/config/recipes/" + name));
}

bool recipe_noted(const TrainConfig& config, const std::string& part) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const auto& note) { return note.find(part) != note.npos; });
}

}  // namespace

TEST_CASE("the GRPO recipe of the README is accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("grpo_open_r1_readme.yaml");
  CHECK(config.task == Task::grpo);
  CHECK(config.model_name_or_path == "Qwen/Qwen2.5-32B-Instruct");
  CHECK(config.dataset_name.at(0).path == "data/grpo_data.jsonl");
  CHECK(config.learning_rate == 5e-6);
  CHECK(config.per_device_train_batch_size == 1);
  CHECK(config.gradient_checkpointing == Recompute::full);
  CHECK(config.use_peft);
  CHECK(config.lora_r == 16);
  CHECK(recipe_noted(config, "lora_r: turns LoRA on"));
  CHECK(config.grpo.at("reward_funcs") ==
        "[accuracy, format, reasoning_steps, cosine, repetition_penalty, length]");
  CHECK(config.grpo.at("num_generations") == "8");
  CHECK(config.grpo.at("vllm_server_host") == "127.0.0.1");
  CHECK(config.grpo.at("vllm_server_port") == "8000");
  CHECK(GrpoValues(config).uses_server());
}

TEST_CASE("the GRPO recipe of the repository is accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("grpo_open_r1_config.yaml");
  CHECK(config.task == Task::grpo);
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.optim == "adamw_8bit");
  CHECK(config.eval_strategy == When::no);
  CHECK(config.gradient_accumulation_steps == 4);
  CHECK(config.gradient_accumulation_given);
  CHECK(config.lr_scheduler_type == "cosine_with_min_lr");
  CHECK(config.lr_scheduler_kwargs == std::map<std::string, double>{{"min_lr_rate", .1}});
  CHECK(config.max_length == 8192);
  CHECK(config.num_train_epochs == 2);
  CHECK(config.warmup_steps == .05);
  CHECK(config.report_to.empty());
  CHECK(config.save_total_limit == 1);
  CHECK(config.dataset_num_proc == 16);
  CHECK(config.grpo.at("vllm_max_model_length") == "8192");
  CHECK(!config.packing);
  CHECK(config.other_task.at("packing") == "true");
  CHECK(recipe_noted(config, "packing: is a key of task sft"));
  CHECK(recipe_noted(config, "use_liger_kernel: has no effect: built-in kernels"));
}

TEST_CASE("with task sft the same recipe ignores the keys of GRPO", "[recipe]") {
  const auto config =
      read_recipe(mgpu::tests::in_sources("tests/runtime/config/recipes/grpo_open_r1_config.yaml"),
                  {.set = {"task=sft"}});
  CHECK(config.task == Task::sft);
  CHECK(config.packing);
  CHECK(config.grpo.empty());
  CHECK(config.other_task.at("num_generations") == "8");
  CHECK(recipe_noted(config, "num_generations: is a key of task grpo"));
}

TEST_CASE("unsloth's arguments as keys are accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("unsloth_sft.yaml");
  CHECK(config.task == Task::sft);
  CHECK(config.per_device_train_batch_size == 2);
  CHECK(config.backend == "nccl");
  CHECK(recipe_noted(config, "enable_memory_optimization: "));
  CHECK(config.load_in_4bit);
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.lora_r == 16);
  CHECK(config.output_dir == "./results");
  CHECK(config.num_train_epochs == 3);
  CHECK(config.learning_rate == 2e-5);
  CHECK(config.logging_steps == 1);
  CHECK(config.save_strategy == When::steps);
  CHECK(config.save_steps == 100);
  CHECK(config.dataset_text_field == "text");
  CHECK(config.use_peft);
  CHECK(config.lora_target_modules.size() == 7);
  CHECK(config.lora_alpha == 16);
  CHECK(config.lora_dropout == 0);
  CHECK(config.gradient_checkpointing == Recompute::offload);
  CHECK(config.seed == 3407);
  CHECK(config.max_length == 4096);
  CHECK(
      recipe_noted(config, "num_gpus: is a launcher key: mgpu-run reads it as its option --nproc"));
}

TEST_CASE("the note on a launcher key in --set does not promise that mgpu-run reads it there",
          "[recipe]") {
  const auto config = read_recipe("", {.set = {"model_name_or_path=m", "dataset_name=d.jsonl",
                                               "max_retries=3", "local_rank=0"}});
  CHECK(recipe_noted(config,
                     "--set: max_retries: is a launcher key, which mgpu-run does not read from "
                     "--set; use its option --max-restarts"));
  CHECK(recipe_noted(config, "--set: local_rank: is a launcher key: mgpu-run sets it"));
}

TEST_CASE("MultiGPUConfig with all its keys is accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("unsloth_multigpu_config.yaml");
  CHECK(config.per_device_train_batch_size == 2);
  CHECK(config.max_steps == 1000);
  CHECK(config.weight_decay == .01);
  CHECK(config.warmup_steps == 100);
  CHECK(config.gradient_checkpointing == Recompute::full);
  CHECK(config.dtype == Dtype::automatic);
  CHECK(config.ddp_timeout == 1800);
  CHECK(config.logging_dir == "logs");
  CHECK(config.eval_strategy == When::no);
  CHECK(recipe_noted(config, "eval_steps: has no effect without eval_dataset"));
  CHECK(config.dataloader_num_workers == 4);
  CHECK(config.dataloader_pin_memory);
  CHECK(recipe_noted(config, "max_retries: is a launcher key"));
  CHECK(config.wandb_project == "unsloth-multigpu");
  CHECK(config.report_to.empty());
}

TEST_CASE("the keys of the older prototype are accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("unsloth_prototype.yaml");
  CHECK(config.gradient_aggregation == Aggregation::mean);
  CHECK(config.batch_sharding == Sharding::adaptive);
  CHECK(config.per_device_train_batch_size == 8);
}

TEST_CASE("the GRPO example in Python is accepted with its two keys of recomputation", "[recipe]") {
  const auto config = recipe_of_the_sources("unsloth_grpo.yaml");
  CHECK(config.task == Task::grpo);
  CHECK(config.model_name_or_path == "Qwen/Qwen2.5-3B-Instruct");
  CHECK(config.per_device_train_batch_size == 1);
  CHECK(config.backend == "nccl");
  CHECK(config.load_in_4bit);
  CHECK(config.lora_r == 16);
  CHECK(config.lora_target_modules ==
        std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"});
  CHECK(config.lora_alpha == 32);
  CHECK(config.gradient_checkpointing == Recompute::offload);
  CHECK(config.learning_rate == 5e-6);
  CHECK(config.output_dir == "./grpo_output");
  CHECK(config.grpo.at("num_generations") == "8");
  CHECK(GrpoValues(config).uses_server());
}

TEST_CASE("the hook example is accepted: 4 bits imply an adapter", "[recipe]") {
  const auto config = recipe_of_the_sources("unsloth_hook.yaml");
  CHECK(config.task == Task::sft);
  CHECK(config.model_name_or_path == "unsloth/llama-2-7b-bnb-4bit");
  CHECK(config.per_device_train_batch_size == 8);
  CHECK(config.gradient_aggregation == Aggregation::mean);
  CHECK(config.max_length == 2048);
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.load_in_4bit);
  CHECK(config.use_peft);
  CHECK(config.lora_r == 16);
  CHECK(config.lora_target_modules.empty());  // all linear layers
  CHECK(recipe_noted(
      config,
      "load_in_4bit: trains a LoRA adapter (lora_r: 16, lora_alpha: 32) on all linear layers, "
      "because 4-bit weights cannot be trained; set lora_r to choose its rank"));
  CHECK(recipe_noted(config, "num_gpus: is a launcher key"));
}

TEST_CASE("the constants of the GSPO guide are accepted as keys", "[recipe]") {
  const auto config = recipe_of_the_sources("gspo_guide.yaml");
  CHECK(config.task == Task::grpo);
  CHECK(config.per_device_train_batch_size == 4);
  CHECK(config.grpo.at("importance_sampling_level") == "sequence");
  CHECK(config.grpo.at("num_generations") == "8");
  CHECK(config.grpo.at("num_iterations") == "4");
  CHECK(config.grpo.at("max_completion_length") == "128");
  CHECK(config.grpo.at("policy_gpus") == "[0, 1]");
  CHECK(config.grpo.at("reference_gpu") == "2");
  CHECK(config.grpo.at("reward_gpu") == "2");
}

TEST_CASE("the arguments of nano_models as keys are accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("nano_models.yaml");
  CHECK(config.model_size == "tiny");
  CHECK(config.per_device_train_batch_size == 2);
  CHECK(config.global_batch_size == 0);
  CHECK(config.learning_rate == .001);
  CHECK(config.output_dir == "./qwen3_distributed_checkpoints");
  CHECK(recipe_noted(config, "batch_size: means per_device_train_batch_size, of one rank"));
}

TEST_CASE("the recipes of the Qwen3 guide have exactly the arguments of its command lines",
          "[recipe]") {
  // The guide's table of arguments, and its three complete examples.
  const std::string defaults =
      "--batch_size 2 --max_length 128 --num_epochs 3 --model_size tiny --lr 0.001 "
      "--save_dir ./qwen3_distributed_checkpoints";
  struct Example {
    const char *file, *arguments;
    std::int64_t ranks;
    TrainConfig expected;
  };
  const auto example = GENERATE_COPY(values<Example>({
      {"nano_quick.yaml",
       "--model_size tiny --num_epochs 1 --batch_size 1",
       2,
       {.model_size = "tiny",
        .max_length = 128,
        .per_device_train_batch_size = 1,
        .num_train_epochs = 1,
        .learning_rate = .001,
        .output_dir = "./qwen3_distributed_checkpoints"}},
      {"nano_production.yaml",
       "--model_size medium --num_epochs 100 --batch_size 4 --max_length 512 --lr 0.0005 "
       "--save_dir ./production_checkpoints",
       4,
       {.model_size = "medium",
        .max_length = 512,
        .per_device_train_batch_size = 4,
        .num_train_epochs = 100,
        .learning_rate = .0005,
        .output_dir = "./production_checkpoints"}},
      {"nano_large.yaml",
       "--model_size large --num_epochs 200 --batch_size 2 --max_length 1024 --lr 0.0001",
       8,
       {.model_size = "large",
        .max_length = 1024,
        .per_device_train_batch_size = 2,
        .num_train_epochs = 200,
        .learning_rate = .0001,
        .output_dir = "./qwen3_distributed_checkpoints"}},
  }));
  CAPTURE(example.file);
  std::map<std::string, std::string> arguments;
  std::istringstream words(defaults + " " + example.arguments);
  for (std::string name, value; words >> name >> value;) arguments[name.substr(2)] = value;

  const auto path = mgpu::tests::in_sources(std::string("docs/examples/") + example.file);
  std::map<std::string, std::string> keys;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(": "); !line.starts_with('#') && colon != line.npos)
      keys[line.substr(0, colon)] = line.substr(colon + 2);
  for (const char* of_the_script : {"model_family", "train_file"})
    CHECK(keys.erase(of_the_script) == 1);
  CHECK(keys == arguments);

  const auto config = read_recipe(path);
  const auto& expected = example.expected;
  CHECK(config.model_size == expected.model_size);
  CHECK(config.model_family == mgpu::model::Family::qwen3);
  CHECK(config.max_length == expected.max_length);
  CHECK(config.per_device_train_batch_size == expected.per_device_train_batch_size);
  CHECK(config.num_train_epochs == expected.num_train_epochs);
  CHECK(config.learning_rate == expected.learning_rate);
  CHECK(config.output_dir == expected.output_dir);
  CHECK(config.max_grad_norm == 1);
  CHECK(plan_batch(config, example.ranks).per_device == expected.per_device_train_batch_size);
  CHECK(plan_batch(config, example.ranks).accumulation == 1);
}

TEST_CASE("MiniOneRec's recipe with its accelerate file is accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("minionerec_sft.yaml");
  CHECK(config.global_batch_size == 128);
  CHECK(config.per_device_train_batch_size == 4);
  CHECK(!config.gradient_accumulation_given);
  CHECK(recipe_noted(config, "batch_size: means global_batch_size"));
  CHECK(config.max_length == 512);
  CHECK(config.eval_steps == .05);
  CHECK(config.save_steps == .05);
  CHECK(config.load_best_model_at_end);
  CHECK(config.early_stopping_patience == 3);
  CHECK(config.resume_from_checkpoint == "auto");
  CHECK(config.zero_stage == 2);
  CHECK(config.reduce_bucket_size == 500'000'000);
  CHECK(config.allgather_bucket_size == 500'000'000);
  CHECK(config.overlap_comm);
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.optim == "adamw_torch_fused");
}

TEST_CASE("MiniOneRec's reinforcement learning is accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("minionerec_rl.yaml");
  CHECK(config.task == Task::grpo);
  CHECK(config.per_device_train_batch_size == 64);
  CHECK(config.per_device_eval_batch_size == 128);
  CHECK(config.gradient_accumulation_steps == 2);
  CHECK(config.learning_rate == 1e-5);
  CHECK(config.eval_strategy == When::steps);
  CHECK(config.eval_steps == .0999);
  CHECK(config.save_steps == .1);
  CHECK(config.warmup_steps == .03);
  CHECK(config.max_grad_norm == .3);
  CHECK(config.grpo.at("reward_funcs") == "[rule, ndcg_rule]");
  CHECK(config.grpo.at("loss_type") == "grpo");
  CHECK(config.grpo.at("info_file") == "data/Amazon/info/Industrial_and_Scientific.txt");
  CHECK(config.grpo.at("beam_search") == "True");
  CHECK(config.grpo.at("sync_ref_model") == "True");
  const auto sizes = plan_generation(config, 8);
  CHECK(sizes.step == 1024);
  CHECK(sizes.prompts() == 64);
}

TEST_CASE("an axolotl file is accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("axolotl_qlora.yaml");
  CHECK(config.dataset_name.at(0).path == "data/alpaca.jsonl");
  CHECK_THAT(config.dataset_name.at(0).names.prompt_format, Contains("### Instruction:"));
  CHECK(config.use_peft);
  CHECK(config.load_in_4bit);
  CHECK(config.packing);
  CHECK(config.lora_target_modules.empty());
  CHECK(config.per_device_train_batch_size == 2);
  CHECK(config.optim == "adamw_8bit");
  CHECK(config.completion_only_loss == true);
  CHECK(config.dtype == Dtype::automatic);
  CHECK(config.eval_strategy == When::steps);
  CHECK(config.eval_steps == .25);
  CHECK(config.save_strategy == When::epoch);
}

TEST_CASE("a LLaMA-Factory file is accepted", "[recipe]") {
  const auto config = recipe_of_the_sources("llama_factory.yaml");
  REQUIRE(config.dataset_name.size() == 2);
  CHECK(config.dataset_name[0].path == "data/identity.jsonl");
  CHECK(config.dataset_name[1].path == "data/alpaca_en.jsonl");
  CHECK(config.lora_r == 8);
  CHECK(config.lora_alpha == 16);
  CHECK(config.lora_target_modules.empty());
  CHECK(config.val_set_size == .1);
  CHECK(config.warmup_steps == .1);
  CHECK(config.ddp_timeout == 180000000);
  CHECK(config.overwrite_output_dir);
}

TEST_CASE("every example has the stated global batch size at its number of ranks", "[recipe]") {
  struct Example {
    const char* name;
    std::int64_t ranks, global;
  };
  const auto [name, ranks, global] = GENERATE(values<Example>({
      {"quickstart.yaml", 2, 64},
      {"packing.yaml", 2, 4},
      {"nano_quick.yaml", 2, 2},
      {"nano_production.yaml", 4, 16},
      {"nano_large.yaml", 8, 16},
      {"lora.yaml", 2, 4},
      {"qlora.yaml", 2, 16},
      {"qlora_8gb.yaml", 1, 16},
      {"full_zero3.yaml", 4, 32},
      {"advanced_config.yaml", 4, 64},
      {"minionerec_sft.yaml", 8, 1024},
      {"items_sft.yaml", 2, 64},
  }));
  CAPTURE(name);
  const auto config = read_recipe(mgpu::tests::in_sources(std::string("docs/examples/") + name));
  CHECK(config.task == Task::sft);
  CHECK(plan_batch(config, ranks).global() == global);
}

TEST_CASE("the example of a recommender's second stage is a recipe", "[recipe]") {
  const auto config = read_recipe(mgpu::tests::in_sources("docs/examples/minionerec_rl.yaml"));
  CHECK(config.task == Task::grpo);
  const auto sizes = plan_generation(config, 2);
  CHECK(sizes.step == 128);
  CHECK(sizes.prompts() == 8);
}
