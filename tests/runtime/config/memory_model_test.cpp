#include "runtime/config/planning/memory_model.hpp"

#include <functional>
#include <set>
#include <string>

#include "runtime/model/layout.hpp"
#include "runtime/parallel/bucket_size.hpp"
#include "tests/runtime/config/published_models.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using mgpu::model::ModelConfig;

namespace {

TrainConfig run(std::int64_t sequences, int zero = 0) {
  TrainConfig c;
  c.per_device_train_batch_size = sequences;
  c.max_length = 2048;
  c.gradient_checkpointing = Recompute::no;
  c.zero_stage = zero;
  return c;
}

TrainConfig recomputed(TrainConfig c, Recompute how = Recompute::full) {
  c.gradient_checkpointing = how;
  return c;
}

TrainConfig eight_bit(TrainConfig c) {
  c.optim = "adamw_8bit";
  return c;
}

TrainConfig lora(TrainConfig c, double dropout = .05) {
  c.use_peft = true;
  c.lora_r = 16;
  c.lora_dropout = dropout;
  return c;
}

// Bins of this many tokens.
TrainConfig packed(std::int64_t tokens) {
  auto c = run(1);
  c.packing = true;
  c.max_length = tokens;
  return c;
}

TrainConfig qlora(TrainConfig c) {
  c = lora(c);
  c.load_in_4bit = true;
  return c;
}

// As step_bench has it with bits=4.
TrainConfig nested_qlora(TrainConfig c) {
  c = lora(c, 0);
  c.load_in_4bit = c.use_bnb_nested_quant = true;
  return c;
}

TrainConfig offloaded_embedding(TrainConfig c) {
  c.offload_embedding = true;
  return c;
}

TrainConfig in_fp8(TrainConfig c, Fp8 which) {
  c.fp8 = which;
  return c;
}

// Completions of up to 256 tokens of prompts of 256.
TrainConfig grpo(std::int64_t completions, const char* group = "8") {
  auto c = lora(run(completions), 0);
  c.task = Task::grpo;
  c.max_length = 512;
  c.grpo["num_generations"] = group;
  c.grpo["max_completion_length"] = "256";
  return c;
}

double planned(const ModelConfig& model, const TrainConfig& c, std::int64_t ranks) {
  return gib(estimate_memory(model, c, ranks).allocated());
}

std::int64_t part(const ModelConfig& model, const TrainConfig& c, std::int64_t ranks,
                  MemoryPart which) {
  return estimate_memory(model, c, ranks).of(which);
}

}  // namespace

TEST_CASE("the plan is within half a percent of the peaks that H200 GPUs had", "[memory]") {
  struct Row {
    const char* name;
    ModelConfig model;
    TrainConfig config;
    std::int64_t gpus;
    double peak;  // GiB
  };
  // docs/benchmarks/h200-x4-trainer.md.
  const Row rows[] = {
      {"0.5B", qwen25_05b(), run(8), 1, 20.85},
      {"0.5B, ZeRO 1, 2 GPUs", qwen25_05b(), run(8, 1), 2, 18.08},
      {"0.5B, ZeRO 1, 4 GPUs", qwen25_05b(), run(8, 1), 4, 16.71},
      {"0.5B, adamw_8bit", qwen25_05b(), eight_bit(run(8)), 1, 18.10},
      {"1.5B", qwen25_15b(), run(4), 1, 38.99},
      {"1.5B, ZeRO 1, 2 GPUs", qwen25_15b(), run(4, 1), 2, 30.36},
      {"1.5B, ZeRO 1, 4 GPUs", qwen25_15b(), run(4, 1), 4, 26.05},
      {"1.5B, ZeRO 0, 4 GPUs", qwen25_15b(), run(4, 0), 4, 38.99},
      {"1.5B, ZeRO 2, 4 GPUs", qwen25_15b(), run(4, 2), 4, 22.61},
      {"1.5B, ZeRO 3, 4 GPUs", qwen25_15b(), run(4, 3), 4, 20.97},
      {"1.5B, adamw_8bit", qwen25_15b(), eight_bit(run(4)), 1, 30.41},
      {"1.5B, recomputed", qwen25_15b(), recomputed(run(8)), 1, 28.89},
      {"1.5B, offloaded", qwen25_15b(), recomputed(run(8), Recompute::offload), 1, 27.67},
      {"1.5B, LoRA", qwen25_15b(), lora(run(4)), 1, 16.35},
      {"7B, ZeRO 3, 4 GPUs", qwen25_7b(), run(4, 3), 4, 62.64},
      {"7B, ZeRO 1, 4 GPUs", qwen25_7b(), run(4, 1), 4, 91.08},
      {"7B, ZeRO 1, 4 GPUs, 2 sequences", qwen25_7b(), run(2, 1), 4, 78.08},
      {"7B, LoRA", qwen25_7b(), lora(run(4)), 1, 42.16},
      {"7B, LoRA, base in fp8", qwen25_7b(), in_fp8(lora(run(4), 0), Fp8::base), 1, 36.12},
      {"1.5B, MLP in fp8", qwen25_15b(), in_fp8(run(4), Fp8::mlp), 1, 39.02},
      {"7B, LoRA, ZeRO 1, 4 GPUs", qwen25_7b(), lora(run(4, 1)), 4, 41.82},
      {"7B, QLoRA", qwen25_7b(), qlora(run(4)), 1, 33.42},
      // h200-adapters.md.
      {"7B, QLoRA, recomputed", qwen25_7b(), recomputed(nested_qlora(run(1))), 1, 6.91},
      {"7B, QLoRA, recomputed, embedding offloaded", qwen25_7b(),
       recomputed(offloaded_embedding(nested_qlora(run(1)))), 1, 5.89},
      // h200-2026-11-29.md, adapters with dropout.
      {"1.5B, packed", qwen25_15b(), packed(8192), 1, 38.99},
      {"1.5B, LoRA, packed", qwen25_15b(), lora(packed(32768)), 1, 52.45},
      {"Qwen3 4B, LoRA, packed", qwen3_4b(), lora(packed(8192)), 1, 34.29},
      {"Qwen3 4B, LoRA, packed, recomputed", qwen3_4b(), recomputed(lora(packed(32768))), 1, 18.26},
      {"7B, QLoRA, embedding offloaded", qwen25_7b(), offloaded_embedding(nested_qlora(run(4))), 1,
       32.13},
      {"7B, QLoRA, ZeRO 3, 4 GPUs", qwen25_7b(), qlora(run(4, 3)), 4, 29.97},
      {"8B with norms of q and k, LoRA", qwen3_8b(), lora(run(4), 0), 1, 48.5},
      {"1.5B, GRPO, LoRA, 2 GPUs", qwen25_15b(), grpo(32), 2, 17.76},  // h200-saves-grpo.md
  };
  for (const auto& row : rows) {
    const double plan = planned(row.model, row.config, row.gpus);
    CAPTURE(row.name, plan, row.peak);
    CHECK(plan > row.peak * .995);
    CHECK(plan < row.peak * 1.005);
  }
}

TEST_CASE("the prompt of a group is counted once in a GRPO micro-batch", "[memory]") {
  // The same number of tokens in rows of SFT.
  const auto rows = [](std::int64_t tokens) {
    auto c = lora(run(tokens / 256), 0);
    c.max_length = 256;
    return c;
  };
  const auto activations = [](const TrainConfig& c) {
    return part(qwen25_15b(), c, 1, MemoryPart::activations);
  };
  CHECK(activations(grpo(16)) == activations(rows((2 + 16) * 256)));
  CHECK(activations(grpo(4)) == activations(rows((1 + 4) * 256)));
  // A micro-batch of 12 can have the ends of two groups and a whole one.
  CHECK(activations(grpo(12)) == activations(rows((3 + 12) * 256)));
  CHECK(activations(grpo(6, "4")) == activations(rows((3 + 6) * 256)));
  auto divided = grpo(16);
  divided.grpo["mask_truncated_completions"] = "true";
  CHECK(activations(divided) == activations(rows(2 * 16 * 256)));
}

TEST_CASE("a budget of tokens replaces the micro-batch in the memory plan of GRPO", "[memory]") {
  const auto activations = [](const TrainConfig& c) {
    return part(qwen25_15b(), c, 1, MemoryPart::activations);
  };
  auto rows = lora(run(40), 0);
  rows.max_length = 256;
  for (const std::int64_t completions : {1, 16, 64}) {
    auto c = grpo(completions);
    c.grpo["micro_batch_tokens"] = std::to_string(40 * 256);
    CHECK(activations(c) == activations(rows));
    c.grpo["micro_batch_tokens"] = "100";  // one sequence of 512 is alone
    rows.per_device_train_batch_size = 2;
    CHECK(activations(c) == activations(rows));
    rows.per_device_train_batch_size = 40;
    c.grpo["micro_batch_tokens"] = "0";
    CHECK(activations(c) == activations(grpo(completions)));
  }
}

TEST_CASE("ZeRO 2 and 3 hold whole gradients of the head while it computes logits", "[memory]") {
  // Of 7B with one sequence on 8 GPUs, the whole gradient of the head alone is 2 GiB.
  const auto head = std::int64_t{152064} * 3584;
  CHECK(part(qwen25_7b(), run(1, 2), 8, MemoryPart::communication) >= head * 4);
  CHECK(part(qwen25_7b(), run(1, 3), 8, MemoryPart::communication) >= head * 4 + head * 2);
  CHECK(part(qwen25_7b(), run(1, 1), 8, MemoryPart::communication) == 0);  // reduced where they are
}

TEST_CASE("an adapter takes a bf16 copy besides its master weights, gradients and moments",
          "[memory]") {
  const auto c = lora(run(1));
  const auto t = count_parameters(qwen25_7b(), c).trainable;
  const auto frozen = 2 * count_parameters(qwen25_7b(), run(1)).total;
  CHECK(part(qwen25_7b(), c, 1, MemoryPart::weights) == frozen + 2 * t);
  CHECK(part(qwen25_7b(), c, 1, MemoryPart::optimizer) == 12 * t);
  CHECK(part(qwen25_7b(), c, 1, MemoryPart::gradients) == 4 * t);
  auto sharded = c;
  sharded.zero_stage = 3;
  CHECK(part(qwen25_7b(), sharded, 4, MemoryPart::weights) == (frozen + 2 * t) / 4);
  CHECK(part(qwen25_7b(), sharded, 4, MemoryPart::optimizer) == 3 * t);
}

// The layout's counts are those of the trainer; here every buffer is counted without padding.
TEST_CASE("quantized matrices, DoRA and modules trained in full are counted as the layout has them",
          "[memory]") {
  using mgpu::model::LoraShape;
  const std::set<std::string> targets{"q_proj", "v_proj", "down_proj"};
  using mgpu::model::MatrixFormat;
  const bool dora = GENERATE(false, true), fp8 = GENERATE(false, true);
  auto c = lora(run(1));
  c.lora_target_modules.assign(targets.begin(), targets.end());
  c.lora_modules_to_save = {"embed_tokens"};
  c.use_dora = dora;
  c.load_in_8bit = !fp8;
  if (fp8) c.fp8 = Fp8::base;
  const LoraShape shape{.rank = 16, .targets = targets, .whole = {"embed_tokens"}, .dora = dora};
  const auto layout = mgpu::model::lay_out(
      qwen25_7b(), shape, {.format = fp8 ? MatrixFormat::fp8 : MatrixFormat::int8});
  CHECK(count_parameters(qwen25_7b(), c).trainable == layout.trained());
  std::int64_t bytes = 2 * layout.trained();
  for (const auto& unit : layout.units) {
    for (const auto& slot : unit.packed.slots) bytes += slot.numel;
    for (const auto& slot : unit.frozen.slots) bytes += 2 * slot.numel;
  }
  CHECK(part(qwen25_7b(), c, 1, MemoryPart::weights) == bytes);
  c.lora_target_modules.push_back("all-linear");
  CHECK(count_parameters(qwen25_7b(), c).trainable > layout.trained());
}

TEST_CASE("frozen weights in fp8 take a byte each, and an MLP in fp8 needs memory for its products",
          "[memory]") {
  auto base = lora(run(4));
  const auto plain = part(qwen25_7b(), base, 1, MemoryPart::weights);
  base.fp8 = Fp8::base;
  CHECK(part(qwen25_7b(), base, 1, MemoryPart::weights) < plain * 6 / 10);
  auto mlp = run(4);
  const auto before = estimate_memory(qwen25_15b(), mlp, 1).allocated();
  mlp.fp8 = Fp8::mlp;
  CHECK(part(qwen25_15b(), mlp, 1, MemoryPart::weights) ==
        part(qwen25_15b(), run(4), 1, MemoryPart::weights));
  CHECK(estimate_memory(qwen25_15b(), mlp, 1).allocated() > before);
}

TEST_CASE("fp16 takes the memory of bf16", "[memory]") {
  const auto grpo = [](TrainConfig c) {
    c.task = Task::grpo;
    c.grpo["cast_lm_head_to_fp32"] = "true";
    return c;
  };
  const std::function<TrainConfig(TrainConfig)> changes[] = {
      [](TrainConfig c) { return c; }, eight_bit, [](TrainConfig c) { return lora(c); }, qlora,
      grpo};
  for (const auto& change : changes) {
    auto bf16 = change({}), fp16 = bf16;
    bf16.dtype = Dtype::bf16;
    fp16.dtype = Dtype::fp16;
    CHECK(planned(qwen25_05b(), fp16, 2) == planned(qwen25_05b(), bf16, 2));
  }
}

TEST_CASE("a head that is trained beside adapters is counted once", "[memory]") {
  auto c = lora(run(1));
  const auto before = part(qwen25_7b(), c, 1, MemoryPart::weights);
  c.lora_modules_to_save = {"lm_head"};
  CHECK(part(qwen25_7b(), c, 1, MemoryPart::weights) == before);
  CHECK(count_parameters(qwen25_7b(), c).trainable > std::int64_t{152064} * 3584);
  c.lora_modules_to_save = {"lm_head"};  // a tied model has none
  CHECK(count_parameters(qwen25_15b(), c).trainable ==
        count_parameters(qwen25_15b(), lora(run(1))).trainable);
}

TEST_CASE("buckets have the size that the trainer uses", "[memory]") {
  auto c = recomputed(run(1, 2));
  const auto chosen = estimate_memory(qwen25_05b(), c, 8).allocated();
  c.reduce_bucket_size = mgpu::parallel::kDefaultBucketElements;
  CHECK(estimate_memory(qwen25_05b(), c, 8).allocated() == chosen);
}
