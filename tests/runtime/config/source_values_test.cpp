// The keys and values of the documents in docs/requirements.md, as they are written there.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

TrainConfig source_recipe(const std::string& name, RecipeOptions options = {}) {
  return read_recipe(mgpu::tests::in_sources("tests/runtime/config/recipes/" + name), options);
}

TrainConfig source_lines(const std::string& lines) {
  return parse_recipe("model_name_or_path: m\ndataset_name: d.jsonl\n" + lines, "f");
}

std::string source_error(const std::string& lines) {
  try {
    source_lines(lines);
  } catch (const RecipeError& e) {
    return e.what();
  }
  return {};
}

bool source_noted(const TrainConfig& config, const std::string& part) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const auto& note) { return note.find(part) != note.npos; });
}

}  // namespace

TEST_CASE("the model of unsloth-multigpu's first example is read", "[sources]") {
  const auto config = source_recipe("unsloth_readme.yaml");
  CHECK(config.task == Task::sft);
  CHECK(config.model_name_or_path == "/path/to/your/model");
  CHECK(config.max_length == 4096);
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.load_in_4bit);
}

TEST_CASE("the adapter of unsloth-multigpu's first example is read", "[sources]") {
  const auto config = source_recipe("unsloth_readme.yaml");
  CHECK(config.use_peft);
  CHECK(config.lora_r == 16);
  CHECK(config.lora_target_modules == std::vector<std::string>{"q_proj", "k_proj", "v_proj",
                                                               "o_proj", "gate_proj", "up_proj",
                                                               "down_proj"});
  CHECK(config.lora_alpha == 16);
  CHECK(config.lora_dropout == 0);
  CHECK(config.gradient_checkpointing == Recompute::offload);
  CHECK(config.seed == 3407);
}

TEST_CASE("the training arguments of unsloth-multigpu's first example are read", "[sources]") {
  const auto config = source_recipe("unsloth_readme.yaml");
  CHECK(config.output_dir == "./results");
  CHECK(config.num_train_epochs == 3);
  CHECK(config.per_device_train_batch_size == 2);
  CHECK(config.learning_rate == 2e-5);
  CHECK(config.logging_steps == 1);
  CHECK(config.save_strategy == When::steps);
  CHECK(config.save_steps == 100);
  CHECK(config.dataset_name.at(0).path == "dataset");
  CHECK(config.dataset_text_field == "text");
  CHECK(config.backend == "nccl");
}

TEST_CASE("the prototype's precision as a text and its length are read", "[sources]") {
  const auto config = source_lines("max_seq_length: 2048\ndtype: \"bfloat16\"\n");
  CHECK(config.max_length == 2048);
  CHECK(config.dtype == Dtype::bf16);
}

TEST_CASE("every aggregation of the prototype has its value", "[sources]") {
  CHECK(source_lines("gradient_aggregation: mean\n").gradient_aggregation == Aggregation::mean);
  CHECK(source_lines("gradient_aggregation: weighted\n").gradient_aggregation ==
        Aggregation::weighted);
  CHECK(source_lines("gradient_aggregation: median\n").gradient_aggregation == Aggregation::median);
  CHECK(source_lines("gradient_aggregation: sum\n").gradient_aggregation == Aggregation::sum);
}

TEST_CASE("every strategy of the prototype is accepted", "[sources]") {
  CHECK(source_lines("batch_sharding_strategy: uniform\n").batch_sharding == Sharding::uniform);
  CHECK(source_lines("batch_sharding_strategy: adaptive\n").batch_sharding == Sharding::adaptive);
  CHECK(source_lines("batch_sharding_strategy: weighted\ngpu_weights: [1, 2]\n").batch_sharding ==
        Sharding::weighted);
  for (const char* strategy : {"parallel", "distributed"})
    CHECK(source_noted(source_lines(fmt::format("gradient_accumulation_strategy: {}\n", strategy)),
                       "gradient_accumulation_strategy: has no effect"));
}

TEST_CASE("device_map is answered with what this program does instead", "[sources]") {
  CHECK(source_noted(source_lines("device_map: auto\n"), "device_map: has no effect"));
}

TEST_CASE("MiniOneRec's batch of 1024 is the same at any number of ranks", "[sources]") {
  const auto [ranks, accumulation] =
      GENERATE(table<std::int64_t, std::int64_t>({{1, 64}, {2, 32}, {4, 16}, {8, 8}, {64, 1}}));
  const auto plan = plan_batch(source_recipe("minionerec_sft_sh.yaml"), static_cast<int>(ranks));
  CHECK(plan.per_device == 16);
  CHECK(plan.accumulation == accumulation);
  CHECK(plan.global() == 1024);
}

TEST_CASE("a number of ranks that MiniOneRec's batch is no multiple of is an error with values",
          "[sources]") {
  // 1024 // 16 // 6 is 10, which would train on 960.
  CHECK_THROWS_WITH(plan_batch(source_recipe("minionerec_sft_sh.yaml"), 6),
                    Contains("1024 is not a multiple of 16 per device x 6 ranks = 96") &&
                        Contains("possible global_batch_size: 960, 1056"));
}

TEST_CASE("any value of ddp_find_unused_parameters is accepted with a note", "[sources]") {
  for (const char* value : {"False", "null", "True"}) {
    CAPTURE(value);
    const auto config = source_lines(fmt::format("ddp_find_unused_parameters: {}\n", value));
    CHECK((std::string(value) == "null" ||
           source_noted(config, "ddp_find_unused_parameters: has no effect")));
  }
}

TEST_CASE("MiniOneRec's DeepSpeed file sets ZeRO-2 and its buckets", "[sources]") {
  const auto config = source_lines(
      "deepspeed:\n  distributed_type: DEEPSPEED\n  mixed_precision: bf16\n  deepspeed_config:\n"
      "    zero_stage: 2\n    contiguous_gradients: true\n    overlap_comm: true\n"
      "    reduce_scatter: true\n    reduce_bucket_size: 5e8\n    allgather_bucket_size: 5e8\n"
      "    offload_optimizer_device: none\n    offload_param_device: none\n");
  CHECK(config.zero_stage == 2);
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.overlap_comm);
  CHECK(config.reduce_bucket_size == 500'000'000);
  CHECK(source_noted(config,
                     "allgather_bucket_size: has no effect: updated weights are gathered "
                     "in place, not in buckets"));
  CHECK_FALSE(source_noted(source_lines("deepspeed: {zero_optimization: {stage: 2, "
                                        "allgather_bucket_size: auto}}\n"),
                           "allgather_bucket_size"));
}

TEST_CASE("a DeepSpeed file that contradicts the recipe is an error with both places",
          "[sources]") {
  CHECK_THAT(source_error("deepspeed: {mixed_precision: bf16}\nfp16: true\n"),
             Contains("fp16") && Contains("contradicts"));
  CHECK_THAT(source_error("deepspeed: {distributed_type: MULTI_GPU, deepspeed_config: "
                          "{zero_stage: 2}}\n"),
             Contains("MULTI_GPU contradicts deepspeed_config"));
  CHECK_THAT(source_error("gradient_accumulation_steps: 2\ndeepspeed: "
                          "{gradient_accumulation_steps: 4}\n"),
             Contains("f:4: gradient_accumulation_steps") && Contains("f:3"));
}

TEST_CASE("the example grpo_open_r1.yaml has the values of the README's recipe", "[sources]") {
  const auto ours = read_recipe(mgpu::tests::in_sources("docs/examples/grpo_open_r1.yaml"));
  const auto theirs = source_recipe("grpo_open_r1_readme.yaml");
  CHECK(ours.model_name_or_path == theirs.model_name_or_path);
  CHECK(ours.dataset_name.at(0).path == theirs.dataset_name.at(0).path);
  CHECK(ours.learning_rate == theirs.learning_rate);
  CHECK(ours.per_device_train_batch_size == theirs.per_device_train_batch_size);
  CHECK(ours.lora_r == theirs.lora_r);
  CHECK(ours.gradient_checkpointing == theirs.gradient_checkpointing);
  CHECK(ours.grpo == theirs.grpo);
}

TEST_CASE("the list of examples has one for each of unsloth-multigpu's", "[sources]") {
  std::ifstream in(mgpu::tests::in_sources("docs/examples/README.md"));
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  const auto [theirs, ours] = GENERATE(
      table<std::string, std::string>({{"quick_start.py", "lora.yaml"},
                                       {"advanced_config.py", "advanced_config.yaml"},
                                       {"direct_trainer_usage.py", "trainer.cpp"},
                                       {"grpo_open_r1_multi_gpu.py", "grpo_open_r1.yaml"},
                                       {"configs/grpo_open_r1_config.yaml", "grpo_open_r1.yaml"},
                                       {"verify_installation.py", "mgpu-run doctor"}}));
  CAPTURE(theirs);
  const auto row = page.find("| `" + theirs + "` | ");
  REQUIRE(row != page.npos);
  CHECK_THAT(page.substr(row, page.find('\n', row) - row), Contains(ours));
  if (ours.find('.') != ours.npos)
    CHECK(std::ifstream(mgpu::tests::in_sources("docs/examples/" + ours)).good());
}
