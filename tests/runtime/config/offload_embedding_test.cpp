// The key that keeps a frozen embedding in host memory.

#include <string>

#include "runtime/config/planning/planner.hpp"
#include "tests/runtime/config/published_models.hpp"
#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t kGpuGiB = 1 << 30;
constexpr std::int64_t kBytes = 152064LL * 3584 * 2;  // of the embedding

PlanRequest qlora_plan(const std::string& lines, std::int64_t gib) {
  return {qwen25_7b(),
          with("load_in_4bit: true\nper_device_train_batch_size: 1\nmax_length: 2048\n" + lines), 1,
          gib * kGpuGiB};
}

}  // namespace

TEST_CASE("offload_embedding is true, false or auto", "[recipe]") {
  CHECK(with("").offload_embedding == std::nullopt);
  CHECK(with("offload_embedding: auto\n").offload_embedding == std::nullopt);
  CHECK(with("offload_embedding: false\n").offload_embedding == false);
  CHECK(with("lora_r: 8\noffload_embedding: true\n").offload_embedding == true);
  CHECK_THAT(mistake("offload_embedding: cpu\n"), Contains("need one of auto, true, false"));
}

TEST_CASE("an embedding that is trained cannot be offloaded", "[recipe]") {
  CHECK_THAT(mistake("offload_embedding: true\n"),
             Contains("offload_embedding: the embedding must stay on the GPU, because training "
                      "without LoRA trains it"));
  CHECK_THAT(mistake("lora_r: 8\nlora_modules_to_save: [model.embed_tokens]\n"
                     "offload_embedding: true\n"),
             Contains("because lora_modules_to_save trains it"));
  CHECK(mistakes("lora_r: 8\nlora_modules_to_save: [lm_head]\noffload_embedding: true\n").empty());
}

TEST_CASE("an embedding that is also the head cannot be offloaded", "[planner]") {
  auto request = qlora_plan("offload_embedding: true\n", 24);
  CHECK(choose_offload_embedding(request));
  request.model.tied = true;
  CHECK_THROWS_WITH(choose_offload_embedding(request), Contains("is also its head"));
  request.config.offload_embedding.reset();
  request.gpu_bytes = kGpuGiB;  // nothing fits
  CHECK_FALSE(choose_offload_embedding(request));
}

TEST_CASE("an offloaded embedding is planned in host memory instead of the GPU's", "[planner]") {
  auto request = qlora_plan("", 24);
  const auto bytes = [&] { return estimate_memory(request.model, request.config, 1).total(); };
  const auto before = bytes();
  CHECK(host_embedding_bytes(request.model, request.config) == 0);
  request.config.offload_embedding = true;
  CHECK(before - bytes() == kBytes);
  CHECK(host_embedding_bytes(request.model, request.config) == kBytes);
  CHECK_THAT(plan_text(request), Contains("Host memory for the embedding (offload_embedding): 1.02 "
                                          "GiB per rank"));
}

TEST_CASE(
    "auto offloads the embedding only where training does not fit otherwise, and before it "
    "recomputes",
    "[planner]") {
  bool offloaded_alone = false, kept = false, last = true;
  for (std::int64_t gib = 7; gib <= 24; ++gib) {
    auto request = qlora_plan("", gib);
    CAPTURE(gib);
    const auto recomputed = choose_recompute(request);
    auto chosen = request;
    chosen.config = with_recomputation(request.config, recomputed);
    const bool offload = choose_offload_embedding(chosen);
    CHECK((last || !offload));  // never again with more memory
    last = offload;
    chosen.config.offload_embedding = offload;
    CHECK(fits(estimate_memory(chosen.model, chosen.config, 1), chosen.gpu_bytes) ==
          plan_fits(request, chosen.config));
    if (recomputed.way != Recompute::no) CHECK(offload);
    offloaded_alone = offloaded_alone || (offload && recomputed.way == Recompute::no);
    kept = kept || !offload;
  }
  CHECK(kept);
  CHECK(offloaded_alone);
  CHECK_FALSE(choose_offload_embedding(qlora_plan("", 0)));  // no GPU
  const bool ran_out = true;
  CHECK(choose_offload_embedding(qlora_plan("", 24), ran_out));
  CHECK_FALSE(choose_offload_embedding(qlora_plan("offload_embedding: false\n", 24), ran_out));
}

TEST_CASE("fewer rows of the head at a time are planned with smaller logits", "[planner]") {
  auto request = qlora_plan("gradient_checkpointing: true\nhead_rows: 1900\n", 24);
  CHECK(request.config.head_rows == 1900);
  const auto logits = [&] {
    return estimate_memory(request.model, request.config, 1).of(MemoryPart::head);
  };
  const auto few = logits();
  request.config.head_rows = 2000;
  CHECK(logits() - few == 100 * (152064 * 2 + 2 * 2 * 3584));
  CHECK_THAT(mistake("head_rows: 0\n"), Contains("head_rows: need "));
}
