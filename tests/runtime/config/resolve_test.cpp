#include "runtime/config/resolve.hpp"

#include <algorithm>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("without a file the recipe consists of --set", "[recipe]") {
  const auto config = read_recipe("", {.set = {"model_name_or_path=m", "dataset_name=d.jsonl"}});
  CHECK(config.model_name_or_path == "m");
  CHECK_THROWS_WITH(read_recipe("", {.set = {"model_name_or_path=m"}}),
                    Catch::Matchers::Contains("dataset_name is missing"));
}

TEST_CASE("an unknown key is reported with its line and the nearest key", "[recipe]") {
  CHECK(mistake("learning_rat: 1e-5\n") ==
        "f:3: unknown key learning_rat; did you mean learning_rate?");
  CHECK(mistake("mirco_batch_size: 2\n") ==
        "f:3: unknown key mirco_batch_size; did you mean micro_batch_size?");
  CHECK(mistake("zzzzzzzzzzzz: 2\n") == "f:3: unknown key zzzzzzzzzzzz");
  const auto config = with("learning_rat: 1e-5\n", {.allow_unknown = true});
  CHECK(noted(config, "f:3: unknown key learning_rat; did you mean learning_rate?"));
}

TEST_CASE("all errors are reported, not only the first", "[recipe]") {
  const auto all = mistakes("lora_r: -1\nmax_lenght: 5\nzero_stage: 4\nbf16: maybe\n");
  REQUIRE(all.size() == 4);
  for (const char* part :
       {"f:3: lora_r: need a number at least 1 and at most 4096, not -1",
        "f:4: unknown key max_lenght", "f:5: zero_stage: need one of auto, 0, 1, 2, 3",
        "f:6: bf16: need true or false, not maybe"})
    CHECK(std::any_of(all.begin(), all.end(),
                      [&](const auto& line) { return line.find(part) == 0; }));
}

TEST_CASE("keys may have dashes and capitals", "[recipe]") {
  CHECK(with("learning-rate: 1e-5\n").learning_rate == 1e-5);
  CHECK(with("BATCH_SIZE: 3\n").per_device_train_batch_size == 3);
}

TEST_CASE("a key without a value has its default", "[recipe]") {
  const auto config = with("max_length: null\nsave_total_limit: ~\nfsdp:\nlora_r: None\n");
  CHECK(config.max_length == 1024);
  CHECK(!config.use_peft);
}

TEST_CASE("two names of one setting are an error unless their values agree", "[recipe]") {
  CHECK(mistake("learning_rate: 1e-5\nlr: 2e-5\n") ==
        "f:4: lr: means the same as learning_rate (f:3); keep one");
  CHECK(with("max_length: 64\ncutoff_len: 64\n").max_length == 64);
  CHECK(mistake("completion_only_loss: true\ntrain_on_inputs: true\n") ==
        "f:4: train_on_inputs: means the same as completion_only_loss (f:3); keep one");
}

TEST_CASE("without the key the task follows from the other keys", "[recipe]") {
  CHECK(with("").task == Task::sft);
  CHECK(with("num_generations: 4\n").task == Task::grpo);
  CHECK(with("reward_funcs: [accuracy]\n").task == Task::grpo);
  CHECK(with("reward_funcs: [accuracy]\n").learning_rate == 1e-6);
  CHECK(with("task: sft\nnum_generations: 4\n").task == Task::sft);
  CHECK_THAT(mistake("task: sftt\n"), Contains("need one of sft, grpo, not sftt"));
}

TEST_CASE("values of GRPO keys are checked by type", "[recipe]") {
  CHECK(mistake("num_generations: many\n") ==
        "f:3: num_generations: need a whole number, not many");
  CHECK(mistake("task: grpo\ntemperature: hot\n") == "f:4: temperature: need a number, not hot");
}

TEST_CASE("overrides win over the file under any alias", "[recipe]") {
  CHECK(with("learning_rate: 1e-5\n", {.set = {"lr=3e-5"}}).learning_rate == 3e-5);
  CHECK(with("", {.set = {"lr=3e-5", "learning_rate=4e-5"}}).learning_rate == 4e-5);
  CHECK(with("max_length: 64\n", {.set = {"max_length=null"}}).max_length == 1024);
  CHECK(with("", {.set = {"lora_target_modules=[q_proj, v_proj]"}}).lora_target_modules.size() ==
        2);
  CHECK(with("bf16: true\n", {.set = {"dtype=fp32"}}).dtype == Dtype::fp32);
  CHECK(mistake("", {.set = {"lrr=1"}}) == "--set: unknown key lrr; did you mean lr?");
  CHECK(mistake("", {.set = {"lr=x"}}) == "--set: lr: need a number, not x");
  CHECK(mistake("", {.set = {"lr"}}) == "--set: need KEY=VALUE, not lr");
}

TEST_CASE("refused keys have a reason, and are accepted with a harmless value", "[recipe]") {
  struct Case {
    const char* asks;
    const char* nothing;
  };
  auto [asks, nothing] = GENERATE(values<Case>({
      {"deepspeed_offload: true", "deepspeed_offload: false"},
      {"sample: 100", "sample: -1"},
      {"truncation_mode: keep_end", "truncation_mode: keep_start"},
      {"bias: all", "bias: none"},
      {"average_tokens_across_devices: false", "average_tokens_across_devices: true"},
      {"quantization_method: hqq", "quantization_method: bnb"},
  }));
  CAPTURE(asks);
  CHECK_THAT(mistake(std::string(asks) + "\n"), Contains("is not supported: "));
  CHECK(mistakes(std::string(nothing) + "\n").empty());
}

TEST_CASE("keys in grouping sections count as top-level keys", "[recipe]") {
  const auto config =
      with("model_init_kwargs: {torch_dtype: bfloat16}\npeft_config: {r: 4, alpha: 8}\n");
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.lora_r == 4);
  CHECK(config.lora_alpha == 8);
  CHECK(with("model_init_kwargs:\ntraining_args: {}\n").notes.empty());
  CHECK(mistake("peft_config:\n  rnk: 4\n") == "f:4: unknown key rnk");
}

TEST_CASE("contradictory keys are refused", "[recipe]") {
  CHECK_THAT(mistake("gradient_aggregation: median\nzero_stage: 2\n"),
             Contains("requires zero_stage 0 or 1, not 2"));
  CHECK_THAT(mistake("batch_sharding: weighted\n"), Contains("requires gpu_weights"));
  CHECK_THAT(mistake("gpu_weights: [1, 2]\n"), Contains("requires batch_sharding: weighted"));
  CHECK_THAT(mistake("full_determinism: true\nbatch_sharding: adaptive\n"),
             Contains("batch_sharding: adaptive distributes work by measured times"));
  CHECK(with("full_determinism: true\nbatch_sharding: uniform\n").full_determinism);
  CHECK(with("gemm_choice: timed\n").gemm_choice == GemmSelection::timed);
  CHECK_THAT(mistake("gemm_choice: fast\n"), Contains("need one of heuristic, timed"));
  CHECK_THAT(mistake("gemm_choice: timed\ntask: grpo\n"),
             Contains("the micro-batches of GRPO have ever new sizes"));
  CHECK_THAT(mistake("model_size: tiny\n"), Contains("contradicts model_name_or_path"));
  CHECK_THAT(mistake("packing: true\ngroup_by_length: true\n"), Contains("contradicts packing"));
  CHECK_THAT(mistake("lora_target_modules: [q_proj, lm_head]\n"), Contains("lora_modules_to_save"));
}

TEST_CASE("an error names a missing model or dataset", "[recipe]") {
  try {
    parse_recipe("seed: 1\n", "f");
    FAIL("accepted");
  } catch (const RecipeError& e) {
    REQUIRE(e.lines().size() == 2);
    CHECK_THAT(e.lines()[0], Contains("model_name_or_path is missing"));
    CHECK_THAT(e.lines()[1], Contains("dataset_name is missing"));
  }
  CHECK_THROWS_WITH(parse_recipe("", "f"), "f:1: the file is empty");
  CHECK_THROWS_WITH(parse_recipe("- a\n", "f"),
                    Contains("a recipe consists of \"key: value\" lines"));
}
