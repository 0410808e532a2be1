#include "runtime/config/planning/suggestion.hpp"

#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t kOneGiB = 1 << 30;

Suggestion suggested(const char* size, std::int64_t gpus, std::int64_t gpu_gib) {
  return suggest(known_model(size), gpus, gpu_gib * kOneGiB);
}

}  // namespace

TEST_CASE("known sizes are those of published models", "[suggestion]") {
  struct Case {
    const char* size;
    const char* name;
    std::int64_t parameters;
  };
  const auto [size, name, parameters] = GENERATE(values<Case>({
      {"0.5B", "Qwen/Qwen2.5-0.5B-Instruct", 494'032'768},
      {"0.6B", "Qwen/Qwen3-0.6B", 596'049'920},
      {"1.5b", "Qwen/Qwen2.5-1.5B-Instruct", 1'543'714'304},
      {"1.7B", "Qwen/Qwen3-1.7B", 1'720'574'976},
      {"3B", "Qwen/Qwen2.5-3B-Instruct", 3'085'938'688},
      {"4B", "Qwen/Qwen3-4B", 4'022'468'096},
      {"7b", "Qwen/Qwen2.5-7B-Instruct", 7'615'616'512},
      {"8B", "Qwen/Qwen3-8B", 8'190'735'360},
      {"14B", "Qwen/Qwen2.5-14B-Instruct", 14'770'033'664},
      {"32B", "Qwen/Qwen2.5-32B-Instruct", 32'763'876'352},
      {"72B", "Qwen/Qwen2.5-72B-Instruct", 72'706'203'648},
  }));
  CAPTURE(size);
  CHECK(known_model(size).name == name);
  CHECK(count_parameters(known_model(size).config, {}).total == parameters);
}

TEST_CASE("an unknown size is rejected with the known ones", "[suggestion]") {
  CHECK_THROWS_WITH(known_model("9B"),
                    Contains("need one of 0.5B, ") && Contains("not 9B; for another model"));
}

TEST_CASE("a size and the memory of the GPUs are enough for a recipe that fits", "[suggestion]") {
  const auto [size, gpus, gpu_gib] =
      GENERATE(table<const char*, std::int64_t, std::int64_t>({{"0.5B", 1, 24},
                                                               {"7B", 2, 80},
                                                               {"7B", 2, 32},
                                                               {"7B", 8, 80},
                                                               {"14B", 1, 16},
                                                               {"72B", 8, 80}}));
  CAPTURE(size, gpus, gpu_gib);
  const auto suggestion = suggested(size, gpus, gpu_gib);
  const auto& plan = suggestion.plan;
  CHECK(plan.ranks == gpus);
  CHECK(plan.gpu_bytes == gpu_gib * kOneGiB);
  CHECK(plan_fits(plan, plan.config));
  CHECK_THAT(suggestion.recipe,
             Contains("model_name_or_path: " + std::string(known_model(size).name)));
  CHECK_THAT(suggestion.recipe, Contains("--nproc " + std::to_string(gpus) + " FILE"));
  const auto& config = plan.config;
  CHECK(config.per_device_train_batch_size <= preset_for(gpus * gpu_gib * kOneGiB).batch_size);
  CHECK(config.per_device_train_batch_size * config.gradient_accumulation_steps == 8);
  CHECK(config.zero_stage != kAutomaticStage);
  CHECK(config.gradient_checkpointing != Recompute::automatic);
  if (config.recomputed_layers > 0) {
    auto fewer = config;
    if (--fewer.recomputed_layers == 0) fewer.gradient_checkpointing = Recompute::no;
    CHECK_FALSE(fits(estimate_memory(plan.model, fewer, gpus), gpu_gib * kOneGiB));
  }
  CHECK(config.notes == parse_recipe(suggestion.recipe, "f").notes);
}

TEST_CASE("all weights are trained if that fits, else an adapter, else one on 4-bit weights",
          "[suggestion]") {
  CHECK_FALSE(suggested("0.5B", 1, 24).plan.config.use_peft);
  CHECK_FALSE(suggested("7B", 8, 80).plan.config.use_peft);
  const auto lora = suggested("7B", 2, 32).plan.config;
  CHECK(lora.use_peft);
  CHECK_FALSE(lora.load_in_4bit);
  CHECK(suggested("14B", 1, 16).plan.config.load_in_4bit);
}

TEST_CASE("a model that does not fit in any way has no recipe", "[suggestion]") {
  CHECK_THROWS_WITH(suggested("72B", 1, 24),
                    Contains("Qwen/Qwen2.5-72B-Instruct does not fit into 1 GPU of 24.0 GiB"));
}
