#include "runtime/config/planning/memory_advice.hpp"

#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

const std::string kTorchs =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.00 GiB memory in "
    "use. Of the allocated memory 70.00 GiB is allocated by PyTorch.\nException raised from x";

}  // namespace

TEST_CASE("running out of memory ends with what was asked for and the keys to change",
          "[memory_advice]") {
  TrainConfig config;
  config.per_device_train_batch_size = 8;
  config.max_length = 4096;
  CHECK(out_of_memory_text(kTorchs, config, 4) ==
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
        "of which 1.20 GiB is free; asked for were per_device_train_batch_size 8 x max_length "
        "4096, gradient_checkpointing auto, zero_stage auto on 4 ranks, training all weights; what "
        "needs less: per_device_train_batch_size: 4 with gradient_accumulation_steps: 2, "
        "gradient_checkpointing: true, zero_stage: 3, max_length: 2048, use_peft: true; "
        "mgpu-train plan shows what fits");
}

TEST_CASE("what the recipe has done already is not advised again", "[memory_advice]") {
  TrainConfig config;
  config.per_device_train_batch_size = 4;
  config.global_batch_size = 64;
  config.max_length = 512;
  config.zero_stage = 3;
  config.gradient_checkpointing = Recompute::full;
  config.use_peft = true;
  const auto ways = [&](std::int64_t ranks) {
    const auto text = *out_of_memory_text(kTorchs, config, ranks);
    const std::string mark = "what needs less: ";
    const auto begin = text.find(mark) + mark.size();
    return text.substr(begin, text.find("; mgpu-train") - begin);
  };
  CHECK(ways(2) ==
        "per_device_train_batch_size: 2, gradient_checkpointing: offload, load_in_4bit: true");
  config.per_device_train_batch_size = 1;
  config.gradient_checkpointing = Recompute::offload;
  CHECK(ways(2) == "load_in_4bit: true");
  config.load_in_4bit = true;
  CHECK(ways(2) == "more GPUs or a smaller model");
  config.zero_stage = 0;
  CHECK(ways(1) == "more GPUs or a smaller model");
  CHECK(ways(2) == "zero_stage: 3");
  config.gradient_aggregation = Aggregation::median;
  CHECK(ways(2) == "zero_stage: 1");
}

TEST_CASE("a GRPO job that runs out of memory is told which of its keys to change",
          "[memory_advice]") {
  auto config = parse_recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\nreward_funcs: [format]\n"
      "per_device_train_batch_size: 2\nnum_generations: 4\nmax_completion_length: 128\n",
      "f");
  const auto text = *out_of_memory_text(kTorchs, config, 1);
  CHECK_THAT(text, Contains("per_device_train_batch_size 2 x max_completion_length 128 behind its "
                            "prompt"));
  CHECK_THAT(text, Contains("what needs less: per_device_train_batch_size: 1, "
                            "gradient_checkpointing: true, max_completion_length: 64, "
                            "num_generations: 2, use_peft: true;"));
  config = parse_recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\nreward_funcs: [format]\nlora_r: 8\n"
      "per_device_train_batch_size: 1\nnum_generations: 2\nmax_completion_length: 1\n"
      "load_in_4bit: true\ngradient_checkpointing: unsloth\n",
      "f");
  CHECK_THAT(*out_of_memory_text(kTorchs, config, 1),
             Contains("what needs less: more GPUs or a smaller model;"));
}

TEST_CASE("only words of the allocators are running out of memory", "[memory_advice]") {
  CHECK_FALSE(out_of_memory_text("the disk is full", {}, 1));
  CHECK_THAT(*out_of_memory_text("x] DefaultCPUAllocator: can't allocate memory: you tried to "
                                 "allocate 64 bytes. Error code 12",
                                 {}, 1),
             Contains("you tried to allocate 64 bytes. Error code 12; asked for were"));
  CHECK_THAT(*out_of_memory_text("CUDA error: out of memory\nmore", {}, 1),
             Contains("CUDA error: out of memory; asked for"));
}
