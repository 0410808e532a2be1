// Values from the files and sections of DeepSpeed and accelerate.

#include <string>

#include "tests/runtime/config/short_recipe.hpp"
#include "tests/support/paths.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("DeepSpeed's fp16 section sets the loss scale", "[recipe]") {
  const std::string keys =
      "loss_scale: 0, loss_scale_window: 500, initial_scale_power: 12, hysteresis: 2, "
      "consecutive_hysteresis: true, min_loss_scale: 4, auto_cast: false";
  const auto config = with("deepspeed: {fp16: {enabled: true, " + keys + "}}\n");
  CHECK(config.dtype == Dtype::fp16);
  CHECK(config.loss_scale == 0);
  CHECK(config.loss_scale_window == 500);
  CHECK(config.initial_scale_power == 12);
  CHECK(config.loss_scale_hysteresis == 2);
  CHECK(config.consecutive_hysteresis);
  CHECK(config.min_loss_scale == 4);
  SECTION("enabled: auto leaves the precision to the recipe") {
    CHECK(with("deepspeed: {fp16: {enabled: auto, loss_scale: 64}}\nfp16: true\n").loss_scale ==
          64);
    CHECK(with("deepspeed: {fp16: {enabled: auto}}\nbf16: true\n").dtype == Dtype::bf16);
  }
  SECTION("a disabled section has no effect") {
    const auto off = with("deepspeed: {fp16: {enabled: false, " + keys +
                          "}, bf16: {enabled: "
                          "true}}\n");
    CHECK(off.dtype == Dtype::bf16);
    CHECK(off.min_loss_scale == 1);
    CHECK(!noted(off, "no effect"));
  }
  SECTION("auto values are those of the recipe") {
    CHECK(with("deepspeed: {fp16: {enabled: true, loss_scale: auto}}\n").loss_scale == 0);
  }
  SECTION("what cannot be honoured is refused") {
    CHECK_THAT(mistake("deepspeed: {fp16: {enabled: true, fp16_master_weights_and_grads: "
                       "true}}\n"),
               Contains("master weights and gradients are always fp32"));
    CHECK_THAT(mistake("deepspeed: {fp16: {enabled: true, los_scale: 2}}\n"),
               Contains("unknown DeepSpeed or accelerate key los_scale"));
  }
}

TEST_CASE("DeepSpeed and accelerate files set the ZeRO stage and its buckets", "[recipe]") {
  const auto path = mgpu::tests::in_sources("tests/runtime/config/recipes/ds_zero3.json");
  const auto config = with("deepspeed: " + path + "\n");
  CHECK(config.zero_stage == 3);
  CHECK(config.max_grad_norm == .5);
  CHECK(config.reduce_bucket_size == 0);
  CHECK(with("zero_optimization: {stage: 1}\n").zero_stage == 1);
  CHECK(with("deepspeed: {zero_optimization: {stage: 2}}\n").zero_stage == 2);
  CHECK_THAT(mistake("zero_stage: 1\ndeepspeed: " + path + "\n"),
             Contains("ds_zero3.json:6: stage: means the same as zero_stage (f:3)"));
  CHECK_THAT(
      mistake("deepspeed: {zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}}\n"),
      Contains("f:3: offload_optimizer: there is no offloading"));
  CHECK_THAT(mistake("deepspeed: nowhere.json\n"),
             Contains("f:3: deepspeed: cannot read nowhere.json"));
}

TEST_CASE("a file of accelerate config had a note for each key that does not concern training",
          "[recipe]") {
  const auto config = with(
      "deepspeed: {compute_environment: LOCAL_MACHINE, downcast_bf16: no, main_training_function: "
      "main, num_processes: 2, distributed_type: DEEPSPEED}\n");
  CHECK(config.notes.size() == 1);
  CHECK(noted(config,
              "without effect on training, in which zero_stage decides what is sharded: "
              "compute_environment, downcast_bf16, main_training_function, num_processes"));
}

TEST_CASE("a DeepSpeed section that accelerate would ignore is an error", "[recipe]") {
  const std::string section = "deepspeed_config: {zero_optimization: {stage: 2}}";
  CHECK_THAT(mistake("deepspeed: {distributed_type: MULTI_GPU, " + section + "}\n"),
             Contains("f:3: distributed_type: MULTI_GPU contradicts deepspeed_config"));
  CHECK(with("deepspeed: {distributed_type: DEEPSPEED, " + section + "}\n").zero_stage == 2);
  CHECK(mistakes("deepspeed: {distributed_type: MULTI_CPU}\n").empty());
}
