#include "runtime/config/planning/memory_advice.hpp"

#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

const std::string kTorchMessage =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.00 GiB memory in "
    "use. Of the allocated memory 70.00 GiB is allocated by PyTorch.\nException raised from x";

}  // namespace

TEST_CASE("an out-of-memory error reports the settings of the run and the keys to change",
          "[memory_advice]") {
  TrainConfig config;
  config.per_device_train_batch_size = 8;
  config.max_length = 4096;
  CHECK(out_of_memory_text(kTorchMessage, config, 4) ==
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
        "of which 1.20 GiB is free; the run had per_device_train_batch_size 8 x max_length "
        "4096, gradient_checkpointing auto, zero_stage auto on 4 ranks, training all weights; to "
        "use less memory, try per_device_train_batch_size: 4 with gradient_accumulation_steps: 2, "
        "gradient_checkpointing: true, zero_stage: 3, max_length: 2048, use_peft: true; "
        "mgpu-train plan shows what fits");
}

TEST_CASE("advice leaves out what the recipe already does", "[memory_advice]") {
  TrainConfig config;
  config.per_device_train_batch_size = 4;
  config.global_batch_size = 64;
  config.max_length = 512;
  config.zero_stage = 3;
  config.gradient_checkpointing = Recompute::full;
  config.use_peft = true;
  const auto advice = [&](std::int64_t ranks) {
    const auto text = *out_of_memory_text(kTorchMessage, config, ranks);
    const std::string mark = "to use less memory, try ";
    const auto begin = text.find(mark) + mark.size();
    return text.substr(begin, text.find("; mgpu-train") - begin);
  };
  CHECK(advice(2) ==
        "per_device_train_batch_size: 2, gradient_checkpointing: offload, load_in_4bit: true");
  config.per_device_train_batch_size = 1;
  config.gradient_checkpointing = Recompute::offload;
  CHECK(advice(2) == "load_in_4bit: true");
  config.load_in_4bit = true;
  CHECK(advice(2) == "more GPUs or a smaller model");
  config.zero_stage = 0;
  CHECK(advice(1) == "more GPUs or a smaller model");
  CHECK(advice(2) == "zero_stage: 3");
  config.gradient_aggregation = Aggregation::median;
  CHECK(advice(2) == "zero_stage: 1");
}

TEST_CASE("advice about a budget of tokens names a smaller one", "[memory_advice]") {
  TrainConfig config;
  config.task = Task::grpo;
  config.grpo = {{"micro_batch_tokens", "16384"}};
  CHECK_THAT(*out_of_memory_text(kTorchMessage, config, 1),
             Contains("the run had micro_batch_tokens 16384, max_completion_length 512 after each "
                      "prompt, ") &&
                 Contains("try micro_batch_tokens: 8192, gradient_checkpointing: true, "));
}

TEST_CASE("advice names the smallest number of layers to recompute that the plan knows",
          "[memory_advice]") {
  PlanRequest plan{.model = {.vocab_size = 4096,
                             .hidden_size = 512,
                             .intermediate_size = 2048,
                             .layers = 12,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 64},
                   .gpu_bytes = std::int64_t{4} << 30};
  plan.config.max_length = 4096;
  plan.config.gradient_checkpointing = Recompute::no;
  const auto advice = [&] { return *out_of_memory_text(kTorchMessage, plan.config, 1, plan); };
  const auto layers = layers_after_failure(plan);
  REQUIRE(layers > 0);
  CHECK_THAT(advice(), Contains(" recomputed_layers: " + std::to_string(layers) + ","));
  plan.config.gradient_checkpointing = Recompute::full;
  plan.config.recomputed_layers = 11;
  CHECK_THAT(advice(), Contains("gradient_checkpointing true, recomputed_layers 11, zero_stage") &&
                           Contains(" recomputed_layers: all,"));
  plan.gpu_bytes = 0;  // unknown
  plan.config.gradient_checkpointing = Recompute::no;
  CHECK_THAT(advice(), Contains(" gradient_checkpointing: true,"));
}

TEST_CASE("an out-of-memory error of a GRPO job names its keys to change", "[memory_advice]") {
  auto config = parse_recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\nreward_funcs: [format]\n"
      "per_device_train_batch_size: 2\nnum_generations: 4\nmax_completion_length: 128\n",
      "f");
  const auto text = *out_of_memory_text(kTorchMessage, config, 1);
  CHECK_THAT(text, Contains("per_device_train_batch_size 2 x max_completion_length 128 after each "
                            "prompt"));
  CHECK_THAT(text, Contains("to use less memory, try per_device_train_batch_size: 1, "
                            "gradient_checkpointing: true, max_completion_length: 64, "
                            "num_generations: 2, use_peft: true;"));
  config = parse_recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\nreward_funcs: [format]\nlora_r: 8\n"
      "per_device_train_batch_size: 1\nnum_generations: 2\nmax_completion_length: 1\n"
      "load_in_4bit: true\ngradient_checkpointing: unsloth\n",
      "f");
  CHECK_THAT(*out_of_memory_text(kTorchMessage, config, 1),
             Contains("to use less memory, try more GPUs or a smaller model;"));
}

TEST_CASE("only messages of the allocators count as out of memory", "[memory_advice]") {
  CHECK_FALSE(out_of_memory_text("the disk is full", {}, 1));
  CHECK_THAT(*out_of_memory_text("x] DefaultCPUAllocator: can't allocate memory: you tried to "
                                 "allocate 64 bytes. Error code 12",
                                 {}, 1),
             Contains("you tried to allocate 64 bytes. Error code 12; the run had"));
  CHECK_THAT(*out_of_memory_text("CUDA error: out of memory\nmore", {}, 1),
             Contains("CUDA error: out of memory; the run had"));
}
