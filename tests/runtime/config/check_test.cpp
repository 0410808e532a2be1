#include "runtime/config/check.hpp"

#include "runtime/config/resolve.hpp"
#include "runtime/config/templates.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

TEST_CASE("check shows changed values, their defaults, the batch arithmetic and notes", "[check]") {
  const auto config = parse_recipe(
      "model: m\ndataset_name: d.jsonl\nlora_r: 8\nbatch_size: 2\nlr: 2e-4\nuse_liger_kernel: "
      "true\n",
      "f");
  const auto text = check_text(config, "f", 4);
  CHECK_THAT(text, Contains("  model_name_or_path"));
  CHECK_THAT(text, Contains("learning_rate") && Contains("0.0002") && Contains("[2e-05"));
  CHECK_THAT(text, Contains("lora_r") && Contains("[16]"));
  CHECK_THAT(text, !Contains("max_length"));
  CHECK_THAT(text, Contains("8 sequences per step = 2 per device x 4 ranks x 1 accumulation"));
  CHECK_THAT(text, Contains("Notes:\n  f:3: lora_r: turns LoRA on"));
  CHECK_THAT(text, !Contains("Warnings"));
}

TEST_CASE("values that are often a mistake cause a warning", "[check]") {
  TrainConfig config;
  config.per_device_train_batch_size = 8;
  CHECK(warnings(config, 4).empty());
  SECTION("a large batch at a low rate") {
    CHECK_THAT(warnings(config, 5).at(0), Contains("40 sequences per step"));
  }
  SECTION("a high rate") {
    config.learning_rate = 2e-3;
    CHECK_THAT(warnings(config, 1).at(0), Contains("is above 0.001"));
    config.model_size = "tiny";  // from scratch
    CHECK(warnings(config, 1).empty());
  }
  SECTION("a long warm-up") {
    config.warmup_steps = 30;
    config.max_steps = 100;
    CHECK_THAT(warnings(config, 1).at(0), Contains("takes 30 % of all steps"));
    config.warmup_steps = 20;
    CHECK(warnings(config, 1).empty());
    config.warmup_steps = .5;
    CHECK_THAT(warnings(config, 1).at(0), Contains("50 %"));
  }
  SECTION("much accumulation") {
    config.per_device_train_batch_size = 1;
    config.gradient_accumulation_steps = 16;
    CHECK_THAT(warnings(config, 1).at(0), Contains("16 accumulation steps"));
  }
  SECTION("a low rate for LoRA") {
    config.use_peft = true;
    CHECK_THAT(warnings(config, 1).at(0), Contains("low for LoRA"));
  }
}

TEST_CASE("check shows how many completions a GRPO step generates and trains on", "[check]") {
  const auto config = parse_recipe(
      "model: m\ndataset_name: d.jsonl\ntask: grpo\nper_device_train_batch_size: 2\n", "f");
  const auto text = check_text(config, "f", 3);
  CHECK_THAT(text, Contains("24 completions per step = 2 per device x 3 ranks x 4 accumulation; 24 "
                            "per generation = 3 prompts x 8\ngradient_accumulation_steps is 4, "
                            "the smallest number that makes whole groups"));
  // GRPO uses low rates by design.
  CHECK(warnings(config, 32).empty());
  CHECK_THROWS_WITH(check_text(parse_recipe("model: m\ndataset_name: d\ntask: "
                                            "grpo\nglobal_batch_size: 12\n",
                                            "f"),
                               "f", 3),
                    Contains("global_batch_size 12 is not a multiple of num_generations 8"));
}

TEST_CASE("every template is a valid recipe without notes and warnings", "[check][template]") {
  for (const auto& kind : template_kinds()) {
    CAPTURE(kind);
    const auto config = parse_recipe(template_text(kind), kind);
    CHECK(config.notes.empty());
    CHECK(warnings(config, 2).empty());
    CHECK((config.task == Task::grpo) == (kind == "grpo"));
    CHECK(config.use_peft == (kind == "lora"));
  }
  CHECK_THROWS_WITH(template_text("dpo"),
                    "unknown template dpo; use one of sft, grpo, lora, debug");
}
