#include "runtime/config/planning/planner.hpp"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "tests/runtime/config/published_models.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
using mgpu::model::ModelConfig;

namespace {

constexpr std::int64_t kPlannedGiB = 1 << 30;

ModelConfig llama32_1b() {
  return {.family = mgpu::model::Family::llama,
          .vocab_size = 128256,
          .hidden_size = 2048,
          .intermediate_size = 8192,
          .layers = 16,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 64,
          .max_position = 131072,
          .tied = true};
}

TrainConfig config(std::int64_t per_device = 1, std::int64_t length = 2048) {
  TrainConfig c;
  c.per_device_train_batch_size = per_device;
  c.max_length = length;
  c.gradient_checkpointing = Recompute::no;
  return c;
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-6 * b;
}

std::int64_t bytes(const ModelConfig& model, const TrainConfig& c, int ranks, MemoryPart part) {
  return estimate_memory(model, c, ranks).of(part);
}

}  // namespace

TEST_CASE("parameter counts equal those of the published checkpoints", "[planner]") {
  CHECK(count_parameters(qwen25_05b(), {}).total == 494'032'768);
  CHECK(count_parameters(qwen25_7b(), {}).total == 7'615'616'512);
  CHECK(count_parameters(qwen3_06b(), {}).total == 596'049'920);
  CHECK(count_parameters(llama32_1b(), {}).total == 1'235'814'400);
}

TEST_CASE("parameter counts of adapters equal those of PEFT", "[planner]") {
  TrainConfig c;
  c.use_peft = true;
  c.lora_r = 16;
  // As print_trainable_parameters reports for Qwen2.5-7B: all linear layers, then q and v only.
  CHECK(count_parameters(qwen25_7b(), c).trainable == 40'370'176);
  c.lora_target_modules = {"q_proj", "v_proj"};
  CHECK(count_parameters(qwen25_7b(), c).trainable == 5'046'272);
}

TEST_CASE("full training takes 2 + 4 + 12 bytes per parameter before activations", "[planner]") {
  const auto model = qwen25_05b();
  const auto P = count_parameters(model, {}).total;
  const auto estimate = estimate_memory(model, config(), 1);
  CHECK(estimate.of(MemoryPart::weights) == 2 * P);
  CHECK(estimate.of(MemoryPart::optimizer) == 12 * P);
  CHECK(estimate.of(MemoryPart::gradients) == 4 * P);
  CHECK(estimate.of(MemoryPart::communication) == 0);
  CHECK(estimate.allocated() + estimate.of(MemoryPart::outside) == estimate.total());
}

TEST_CASE("moments in fewer bits and bf16 gradients take less memory", "[planner]") {
  const auto model = qwen25_05b();
  const auto P = static_cast<double>(count_parameters(model, {}).total);
  auto c = config();
  c.optim_dtype = "bf16";
  CHECK(bytes(model, c, 1, MemoryPart::optimizer) == static_cast<std::int64_t>(8 * P));
  c.optim = "adamw_8bit";
  CHECK(near(static_cast<double>(bytes(model, c, 1, MemoryPart::optimizer)), 6.03125 * P));
  const auto before = bytes(model, c, 1, MemoryPart::gradients);
  c.grad_dtype = "bf16";
  CHECK(near(static_cast<double>(before - bytes(model, c, 1, MemoryPart::gradients)), 2 * P));
}

TEST_CASE("each ZeRO stage shards one more part over the ranks", "[planner]") {
  const auto model = qwen25_7b();
  const auto P = count_parameters(model, {}).total;
  auto c = config();
  const auto part = [&](int stage, MemoryPart which) {
    c.zero_stage = stage;
    return bytes(model, c, 4, which);
  };
  CHECK(part(0, MemoryPart::optimizer) == 12 * P);
  CHECK(part(1, MemoryPart::optimizer) == 3 * P);
  CHECK(part(1, MemoryPart::gradients) == part(0, MemoryPart::gradients));
  CHECK(part(1, MemoryPart::gradients) - part(2, MemoryPart::gradients) == 3 * P);
  CHECK(part(2, MemoryPart::weights) == 2 * P);
  CHECK(part(3, MemoryPart::weights) == P / 2);
  c.zero_stage = 3;
  CHECK(bytes(model, c, 1, MemoryPart::optimizer) == 12 * P);  // one rank has nothing to shard
}

TEST_CASE("zero_stage: auto is 1, or the first higher stage that fits", "[planner]") {
  PlanRequest request{qwen25_7b(), config(), 4, 0};
  CHECK(request.config.zero_stage == kAutomaticStage);
  CHECK(choose_zero_stage(request) == 1);
  request.gpu_bytes = std::int64_t{139} << 30;
  CHECK(choose_zero_stage(request) == 1);
  request.gpu_bytes = std::int64_t{64} << 30;
  CHECK(choose_zero_stage(request) == 2);
  request.gpu_bytes = std::int64_t{40} << 30;
  CHECK(choose_zero_stage(request) == 3);
  request.config.gradient_aggregation = Aggregation::median;
  CHECK(choose_zero_stage(request) == 1);
  request.config.consistency_check_steps = 5;
  CHECK(choose_zero_stage(request) == 0);
  request.config.zero_stage = 2;
  CHECK(choose_zero_stage(request) == 2);
  request.config.zero_stage = kAutomaticStage;
  request.ranks = 1;
  CHECK(choose_zero_stage(request) == 0);
}

TEST_CASE("zero_stage: auto is 0 where copies of the state are wanted and fit", "[planner]") {
  PlanRequest request{.model = qwen25_7b(), .config = config(), .ranks = 4, .wants_copies = true};
  CHECK(choose_zero_stage(request) == 0);
  request.gpu_bytes = std::int64_t{300} << 30;
  CHECK(choose_zero_stage(request) == 0);
  request.gpu_bytes = std::int64_t{64} << 30;
  CHECK(choose_zero_stage(request) == 2);
}

TEST_CASE("recomputation keeps only the inputs of layers, and activations grow with the tokens",
          "[planner]") {
  const auto model = qwen25_7b();
  auto c = config(1);
  const auto plain = bytes(model, c, 1, MemoryPart::activations);
  CHECK(bytes(model, config(4), 1, MemoryPart::activations) == 4 * plain);
  c.gradient_checkpointing = Recompute::full;
  const auto recomputed = bytes(model, c, 1, MemoryPart::activations);
  CHECK(recomputed < plain / 5);
  c.gradient_checkpointing = Recompute::offload;
  // Memory is fullest while the head computes logits: by then all inputs are on the host.
  CHECK(recomputed - bytes(model, c, 1, MemoryPart::activations) == 28LL * 2 * 3584 * 2048);
}

TEST_CASE("a model in 4 bits takes about a quarter of the memory", "[planner]") {
  const auto model = qwen25_7b();
  auto c = config();
  c.use_peft = true;
  const auto plain = bytes(model, c, 1, MemoryPart::weights);
  c.load_in_4bit = true;
  const auto four = bytes(model, c, 1, MemoryPart::weights);
  CHECK(four < plain * 45 / 100);
  c.use_bnb_nested_quant = true;
  CHECK(bytes(model, c, 1, MemoryPart::weights) < four);
}

TEST_CASE("proposals fit, keep the global batch size, and the fastest comes first", "[planner]") {
  PlanRequest request{qwen25_05b(), config(8, 2048), 4, 24 * kPlannedGiB};
  request.config.gradient_accumulation_steps = 2;
  const auto proposals = propose(request);
  REQUIRE(!proposals.empty());
  CHECK(proposals.size() <= 3);
  for (const auto& p : proposals) {
    CHECK(p.per_device * p.accumulation == 16);
    CHECK(p.bytes <= request.gpu_bytes);
    CHECK(p.cost >= proposals.front().cost);
    auto c = request.config;
    c.per_device_train_batch_size = p.per_device;
    c.gradient_accumulation_steps = p.accumulation;
    c.zero_stage = p.zero_stage;
    c = with_recomputation(c, {p.recompute, p.recomputed_layers});
    CHECK(fits(estimate_memory(request.model, c, 4), request.gpu_bytes));
  }
}

TEST_CASE("more memory never makes the best proposal slower", "[planner]") {
  double last = 1e9;
  for (const std::int64_t size : {24, 32, 40, 48, 80, 141}) {
    const auto proposals = propose({qwen25_7b(), config(4), 8, size * kPlannedGiB});
    if (proposals.empty()) continue;
    CHECK(proposals.front().cost <= last);
    last = proposals.front().cost;
  }
  CHECK(last < 1e9);
}

TEST_CASE("if nothing fits, the plan names changes that would", "[planner]") {
  const PlanRequest request{qwen25_7b(), config(1), 1, 24 * kPlannedGiB};
  CHECK(propose(request).empty());
  const auto text = plan_text(request);
  CHECK_THAT(text, Contains("it does not fit") && Contains("would fit: lora_r: 16 (from "));
  CHECK_THAT(text, Contains("would fit: 8 GPUs"));
}

TEST_CASE("the plan shows the host memory of checkpoints in the background", "[planner]") {
  PlanRequest request{qwen25_05b(), config(1), 2, 80 * kPlannedGiB};
  const auto parameters = count_parameters(request.model, request.config).total;
  CHECK(checkpoint_bytes(request.model, request.config) == 14 * parameters);
  CHECK_THAT(
      plan_text(request),
      Contains("checkpoints in the background (async_save): 6.4 GiB for all ranks together"));
  SECTION("the training state may be left out") {
    request.config.save_only_model = true;
    CHECK(checkpoint_bytes(request.model, request.config) == 2 * parameters);
  }
  SECTION("adapters have fp32 weights and little state") {
    request.config.use_peft = true;
    request.config.lora_r = 16;
    const auto trained = count_parameters(request.model, request.config).trainable;
    CHECK(checkpoint_bytes(request.model, request.config) == 16 * trained);
    request.config.pissa = 16;  // its files have twice the rank
    CHECK(checkpoint_bytes(request.model, request.config) == 20 * trained);
  }
  SECTION("without them it is not shown") {
    request.config.async_save = false;
    CHECK_THAT(plan_text(request), !Contains("Host memory"));
  }
}

TEST_CASE("a job that cannot fit is refused with what would fit", "[planner]") {
  PlanRequest request{qwen25_7b(), config(1), 1, 24 * kPlannedGiB};
  request.config.zero_stage = 0;
  CHECK_THAT(memory_error(request).value(),
             Contains("a GPU has 24.0 GiB, but training would need ") &&
                 Contains(" GiB with per_device_train_batch_size 1 x 2048 tokens, zero_stage 0 and "
                          "gradient_checkpointing false; would fit: ") &&
                 Contains("lora_r: 16 (from "));
  CHECK(memory_error(request)->find('\n') == std::string::npos);

  request.ranks = 4;
  request.gpu_bytes = 80 * kPlannedGiB;
  CHECK_THAT(memory_error(request).value(),
             Contains("; the same steps fit with per_device_train_batch_size: 1, "
                      "gradient_accumulation_steps: 1, zero_stage: "));
  request.config.zero_stage = 3;
  CHECK_FALSE(memory_error(request));
  request.gpu_bytes = 0;  // unknown
  request.config.zero_stage = 0;
  CHECK_FALSE(memory_error(request));
}

TEST_CASE("recommended batch sizes count the GPUs of roles too", "[planner]") {
  PlanRequest request{qwen25_05b(), config(1), 2, 16 * kPlannedGiB};
  CHECK_THAT(plan_text(request), !Contains("Guides recommend"));  // those guides are about GRPO
  request.config.task = Task::grpo;
  CHECK_THAT(plan_text(request), Contains("for 32 GiB in total: per_device_train_batch_size 2"));
  request.gpus = 3;
  CHECK_THAT(plan_text(request), Contains("for 48 GiB in total: per_device_train_batch_size 4"));
}

TEST_CASE("a budget of tokens is planned instead of a number of sequences", "[planner]") {
  auto c = config(64);
  c.task = Task::grpo;
  c.grpo = {{"micro_batch_tokens", "65536"}};
  PlanRequest request{qwen25_05b(), c, 1, 24 * kPlannedGiB};
  CHECK_THAT(plan_text(request), Contains("and 65536 tokens per micro-batch"));
  CHECK_THAT(memory_error(request).value(), Contains("GiB with micro-batches of 65536 tokens"));
  for (const auto& p : propose(request)) CHECK(p.per_device == 64);
  request.gpu_bytes = 10 * kPlannedGiB;
  const auto changes = fitting_changes(request);
  REQUIRE_FALSE(changes.empty());
  CHECK_THAT(changes.front(), Contains("micro_batch_tokens: "));
}

TEST_CASE("recomputation is chosen only if it is needed", "[planner]") {
  PlanRequest request{qwen25_05b(), config(8), 1, 141 * kPlannedGiB};
  request.config.gradient_checkpointing = Recompute::automatic;
  CHECK(choose_recompute(request) == Recomputation{Recompute::no});
  request.gpu_bytes = 0;  // unknown
  CHECK(choose_recompute(request) == Recomputation{Recompute::no});
  request.gpu_bytes = 20 * kPlannedGiB;
  CHECK(choose_recompute(request).way == Recompute::full);
  request.gpu_bytes = 9 * kPlannedGiB;
  CHECK(choose_recompute(request) == Recomputation{Recompute::offload});
}

TEST_CASE("as few layers are recomputed as the memory of the GPU requires", "[planner]") {
  PlanRequest request{qwen25_05b(), config(8), 1, 0};
  request.config.gradient_checkpointing =
      GENERATE(Recompute::automatic, Recompute::full, Recompute::offload);
  const auto offloads = request.config.gradient_checkpointing == Recompute::offload;
  std::int64_t last = 100;
  for (std::int64_t size = 13; size <= 24; ++size) {
    request.gpu_bytes = size * kPlannedGiB;
    const auto chosen = choose_recompute(request);
    CAPTURE(size, chosen.way, chosen.layers);
    const auto room = [&](const Recomputation& what) {
      return fits(estimate_memory(request.model, with_recomputation(request.config, what), 1),
                  request.gpu_bytes);
    };
    REQUIRE(room(chosen));
    const auto layers = recomputed_layers_of(with_recomputation(request.config, chosen), 24);
    CHECK(layers <= last);
    if (layers > 0) CHECK(chosen.way == (offloads ? Recompute::offload : Recompute::full));
    if (layers == 1) CHECK_FALSE(room({Recompute::no}));
    if (layers > 1) CHECK_FALSE(room({chosen.way, layers - 1}));
    last = layers;
  }
  CHECK(last == 0);
  request.config.recomputed_layers = 7;  // is not changed
  if (request.config.gradient_checkpointing != Recompute::automatic)
    CHECK(choose_recompute(request).layers == 7);
  request.config.recomputed_layers = 25;
  CHECK_THROWS_WITH(choose_recompute(request),
                    Contains("recomputed_layers: 25 is more than the model's 24 layers"));
}

TEST_CASE("the plan proposes no more recomputed layers than are needed", "[planner]") {
  PlanRequest request{qwen25_05b(), config(8), 1, 20 * kPlannedGiB};
  request.config.global_batch_size = 8;
  const auto text = plan_text(request);
  CHECK_THAT(text, Contains("it does not fit") && Contains("recomputed_layers"));
  CHECK_THAT(memory_error(request).value(),
             Contains("gradient_checkpointing false; the same steps"));
  bool partial = false;
  for (const auto& p : propose(request))
    if (p.per_device == 8) {
      partial = partial || p.recomputed_layers > 0;
      CHECK(p.recomputed_layers < 24);
      CHECK(p.cost < 1.33);
    }
  CHECK(partial);
  request.config.gradient_checkpointing = Recompute::automatic;
  CHECK_THAT(plan_text(request), Contains("gradient_checkpointing true, recomputed_layers "));
}

TEST_CASE("each kept layer costs its activations, and each recomputed one its input", "[planner]") {
  const auto model = qwen25_7b();
  auto c = config();
  const auto tokens = std::int64_t{2048};
  const auto saved = tokens * (2 * (3 * 3584 + 4608 + 3584 + 2 * 18944) + 4 * 28 + 8);
  const auto plain = bytes(model, c, 1, MemoryPart::activations);
  c.gradient_checkpointing = Recompute::full;
  for (const std::int64_t layers : {1, 2, 12, 26, 27}) {
    c.recomputed_layers = layers;
    CHECK(plain - bytes(model, c, 1, MemoryPart::activations) == layers * saved);
  }
  // The last recomputed layer gains nothing while it is in its own backward pass, the first one.
  const auto all_but_one = estimate_memory(model, c, 1);
  c.recomputed_layers = kAllLayers;
  CHECK(estimate_memory(model, c, 1).allocated() <= all_but_one.allocated());
  const auto all = bytes(model, c, 1, MemoryPart::activations);
  c.recomputed_layers = 28;
  CHECK(bytes(model, c, 1, MemoryPart::activations) == all);
  c.gradient_checkpointing = Recompute::offload;
  c.recomputed_layers = 12;
  CHECK(plain - bytes(model, c, 1, MemoryPart::activations) == 12 * (saved + 2 * 3584 * tokens));
}

TEST_CASE("presets follow the memory of all GPUs together", "[planner]") {
  CHECK(preset_for(3 * 16 * kPlannedGiB).batch_size == 4);
  CHECK(preset_for(3 * 16 * kPlannedGiB).group_size == 8);
  CHECK(preset_for(2 * 16 * kPlannedGiB).batch_size == 2);
  CHECK(preset_for(2 * 16 * kPlannedGiB).group_size == 4);
  CHECK(preset_for(3 * 8 * kPlannedGiB).batch_size == 1);
  CHECK(preset_for(3 * 8 * kPlannedGiB).group_size == 2);
}

TEST_CASE("the plan of a GRPO job has the settings that the guide recommends", "[planner]") {
  auto grpo = config(2);
  grpo.task = Task::grpo;
  const auto text = plan_text({qwen25_05b(), grpo, 2, 16 * kPlannedGiB, 3});
  CHECK_THAT(text, Contains("Guides recommend for 48 GiB in total: per_device_train_batch_size 4, "
                            "num_generations 8"));
  const auto row = [&](const std::string& purpose) {
    const auto begin = text.find(purpose) + purpose.size();
    std::istringstream numbers(text.substr(begin, text.find('\n', begin) - begin));
    std::vector<int> all;
    for (int number = 0; numbers >> number;) all.push_back(number);
    return all;
  };
  CHECK_THAT(text, Contains("num_iterations"));
  CHECK(row("3 GPUs of 16 GiB or more") == std::vector{4, 8, 4});
  CHECK(row("3 GPUs of 8 GiB") == std::vector{1, 4, 4});
  CHECK(row("\nspeed") == std::vector{8, 4, 2});
}

TEST_CASE("the plan shows every part of the memory", "[planner]") {
  auto sharded = config(2);
  sharded.zero_stage = 3;
  const auto text = plan_text({qwen25_05b(), sharded, 4, 80 * kPlannedGiB});
  CHECK_THAT(text, Contains("494032768 parameters, 494032768 of them trained"));
  CHECK_THAT(text, Contains("8 sequences per step = 2 per device x 4 ranks x 1 accumulation"));
  for (const char* part :
       {"weights", "gradients", "optimizer", "activations", "logits", "communication", "workspace",
        "outside", "allocated", "total", "it fits"})
    CHECK_THAT(text, Contains(part));
}

TEST_CASE("absurd sizes are capped at a number that fits nowhere", "[planner]") {
  auto model = qwen25_7b();
  model.layers = model.hidden_size = model.vocab_size = 1LL << 40;
  CHECK(!fits(estimate_memory(model, config(), 1), 1LL << 50));
}

TEST_CASE("amounts of memory may be written in the usual ways", "[planner]") {
  CHECK(parse_memory("32GB") == 32 * kPlannedGiB);
  CHECK(parse_memory("80 GiB") == 80 * kPlannedGiB);
  CHECK(parse_memory("81920MiB") == 80 * kPlannedGiB);
  CHECK(parse_memory("1.5g") == 3 * kPlannedGiB / 2);
  for (const char* bad : {"", "GB", "32", "-1GB", "nanGB", "1e30GB", "32 potatoes"})
    CHECK_THROWS_WITH(parse_memory(bad), Contains("need an amount of memory"));
}
