#include "runtime/config/planning/oom_remedies.hpp"

#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;
using Values = std::map<std::string, std::string>;
using Changes = std::vector<std::string>;

namespace {

TrainConfig shrinkable() {
  TrainConfig config;
  config.per_device_train_batch_size = 6;
  config.gradient_checkpointing = Recompute::no;
  config.zero_stage = 1;
  return config;
}

// Of a GPU whose memory is unknown.
Changes changes(const TrainConfig& config, std::int64_t ranks) {
  Changes all;
  for (const auto& remedy : oom_remedies({.config = config, .ranks = ranks}))
    all.push_back(remedy.change);
  return all;
}

}  // namespace

TEST_CASE(
    "after a lack of memory micro-batches shrink, then layers are recomputed, then more is "
    "sharded",
    "[oom_remedies]") {
  CHECK(changes(shrinkable(), 4) ==
        Changes{"per_device_train_batch_size: 3", "per_device_train_batch_size: 2",
                "per_device_train_batch_size: 1", "gradient_checkpointing: true",
                "gradient_checkpointing: offload", "zero_stage: 2", "zero_stage: 3"});
  const auto remedies = oom_remedies({.config = shrinkable(), .ranks = 4});
  CHECK(halvings(remedies).size() == 3);
  CHECK(halvings(remedies).back().change == "per_device_train_batch_size: 1");
  CHECK(remedies[3].per_device == 1);
  CHECK(remedies[3].recompute == Recompute::full);
  CHECK(remedies[3].zero_stage == 1);
  CHECK(remedies.back().recompute == Recompute::offload);
}

TEST_CASE("a remedy that the recipe already uses or excludes is left out", "[oom_remedies]") {
  auto config = shrinkable();
  config.per_device_train_batch_size = 1;
  config.gradient_checkpointing = Recompute::full;
  SECTION("one rank has nothing to shard") {
    config.zero_stage = 0;
    CHECK(changes(config, 1) == Changes{"gradient_checkpointing: offload"});
  }
  SECTION("the median of gradients needs whole gradients") {
    config.gradient_checkpointing = Recompute::offload;
    config.zero_stage = 0;
    config.gradient_aggregation = Aggregation::median;
    CHECK(changes(config, 2) == Changes{"zero_stage: 1"});
  }
  SECTION("the consistency check needs copies of the weights") {
    config.consistency_check_steps = 10;
    CHECK(changes(config, 2) == Changes{"gradient_checkpointing: offload", "zero_stage: 2"});
  }
  SECTION("a loss with a mean or quantile over each micro-batch keeps its size") {
    config.task = Task::grpo;
    config.per_device_train_batch_size = 2;
    CHECK(changes(config, 1).front() == "per_device_train_batch_size: 1");
    config.grpo = GENERATE(Values{{"top_entropy_quantile", "0.8"}}, Values{{"loss_type", "bnpo"}},
                           Values{{"loss_normalization", "trl"}, {"entropy_coef", "0.1"}},
                           Values{{"loss_normalization", "trl"}, {"use_adaptive_entropy", "true"}});
    CHECK(changes(config, 1) == Changes{"gradient_checkpointing: offload"});
  }
}

TEST_CASE("after a lack of memory a budget of tokens is halved, instead of the micro-batch",
          "[oom_remedies]") {
  auto recipe = shrinkable();
  recipe.task = Task::grpo;
  recipe.max_length = 3000;
  recipe.zero_stage = 0;
  recipe.grpo = {{"micro_batch_tokens", "16000"}};
  CHECK(changes(recipe, 1) == Changes{"micro_batch_tokens: 8000", "micro_batch_tokens: 4000",
                                      "micro_batch_tokens: 3000", "gradient_checkpointing: true",
                                      "gradient_checkpointing: offload"});
  CHECK(halvings(oom_remedies({.config = recipe})).size() == 3);
  const auto now =
      with_changes(recipe, {"micro_batch_tokens: 8000", "micro_batch_tokens: 4000"}, 1);
  CHECK(now.grpo.at("micro_batch_tokens") == "4000");
  CHECK(changed_settings(recipe, now) == "micro_batch_tokens: 4000");
  CHECK(pieces_for(recipe, 16) == 16);
  recipe.grpo["micro_batch_tokens"] = "2000";  // needs less already
  CHECK(changed_settings(recipe, with_changes(recipe, {"micro_batch_tokens: 4000"}, 1)).empty());
  recipe.grpo.clear();  // has no budget
  CHECK(changed_settings(recipe, with_changes(recipe, {"micro_batch_tokens: 4000"}, 1)).empty());
}

TEST_CASE("changes of earlier attempts are made again, whatever the recipe is now",
          "[oom_remedies]") {
  auto recipe = shrinkable();
  const auto after = [&](const Changes& remembered, std::int64_t ranks = 4) {
    return changed_settings(recipe, with_changes(recipe, remembered, ranks));
  };
  CHECK(after({}).empty());
  CHECK(after({"per_device_train_batch_size: 3", "per_device_train_batch_size: 2"}) ==
        "per_device_train_batch_size: 2");
  CHECK(after(changes(recipe, 4)) ==
        "per_device_train_batch_size: 1, gradient_checkpointing: offload, zero_stage: 3");
  SECTION("and are left out if the recipe needs less already") {
    recipe.per_device_train_batch_size = 2;
    recipe.gradient_checkpointing = Recompute::offload;
    recipe.zero_stage = 3;
    CHECK(after({"per_device_train_batch_size: 3", "gradient_checkpointing: true", "zero_stage: 2"})
              .empty());
  }
  SECTION("as are those that the recipe or the ranks exclude") {
    CHECK(after({"zero_stage: 3"}, 1).empty());
    recipe.consistency_check_steps = 10;
    CHECK(after({"zero_stage: 3"}) == "zero_stage: 2");
    recipe.task = Task::grpo;
    recipe.grpo = {{"loss_type", "bnpo"}};
    CHECK(after({"per_device_train_batch_size: 1"}).empty());
  }
  SECTION("and text that is no change is left out") {
    CHECK(after({"", "zero_stage", "zero_stage: x", "zero_stage: 99999999999999999999",
                 "per_device_train_batch_size: 0", "per_device_train_batch_size: -1",
                 "gradient_checkpointing: auto"})
              .empty());
  }
}

TEST_CASE("no remedy is tried twice when the recipe changes between two attempts",
          "[oom_remedies]") {
  auto recipe = shrinkable();
  const Changes remembered{"per_device_train_batch_size: 3"};
  const auto next = [&] { return changes(with_changes(recipe, remembered, 1), 1).front(); };
  CHECK(next() == "per_device_train_batch_size: 2");
  recipe.per_device_train_batch_size = 3;
  CHECK(next() == "per_device_train_batch_size: 2");
  recipe.per_device_train_batch_size = 12;
  CHECK(next() == "per_device_train_batch_size: 2");
  recipe.per_device_train_batch_size = 1;
  CHECK(next() == "gradient_checkpointing: true");
}

TEST_CASE("a smaller micro-batch has at most as many pieces as sequences", "[oom_remedies]") {
  auto config = shrinkable();
  CHECK(pieces_for(config, 1) == 1);
  CHECK(pieces_for(config, 16) == 8);
  config.per_device_train_batch_size = 3;
  CHECK(pieces_for(config, 8) == 4);
  config.per_device_train_batch_size = 1;
  CHECK(pieces_for(config, 8) == 1);
  config.packing = true;  // one sequence has many rows
  CHECK(pieces_for(config, 8) == 8);
}

namespace {

PlanRequest small_request() {
  return {.model = {.vocab_size = 4096,
                    .hidden_size = 512,
                    .intermediate_size = 2048,
                    .layers = 4,
                    .heads = 8,
                    .kv_heads = 4,
                    .head_dim = 64,
                    .max_position = 4096},
          .config = shrinkable(),
          .ranks = 1};
}

}  // namespace

TEST_CASE("after a lack of memory no more layers are recomputed than the plan requires",
          "[oom_remedies]") {
  auto request = small_request();
  request.model.layers = 12;
  request.config.per_device_train_batch_size = 1;
  request.config.zero_stage = 0;
  const auto changes_now = [&] {
    Changes all;
    for (const auto& remedy : oom_remedies(request)) all.push_back(remedy.change);
    return all;
  };
  CHECK(changes_now() ==
        Changes{"gradient_checkpointing: true", "gradient_checkpointing: offload"});
  request.gpu_bytes = std::int64_t{4} << 30;
  const auto layers = layers_after_failure(request);
  REQUIRE(layers > 0);
  const auto first = "recomputed_layers: " + std::to_string(layers);
  CHECK(changes_now() ==
        Changes{first, "recomputed_layers: all", "gradient_checkpointing: offload"});
  const auto after = [&](const Changes& remembered) {
    return changed_settings(request.config, with_changes(request.config, remembered, 1));
  };
  CHECK(after({first}) == "gradient_checkpointing: true, " + first);
  CHECK(after({first, "recomputed_layers: all"}) == "gradient_checkpointing: true");
  CHECK(after(changes_now()) == "gradient_checkpointing: offload");
  const auto recipe = request.config;
  request.config = with_changes(recipe, {first}, 1);
  CHECK(changes_now() == Changes{"recomputed_layers: all", "gradient_checkpointing: offload"});
  CHECK(after({"recomputed_layers: all"}) == "recomputed_layers: all");
  CHECK(after({"gradient_checkpointing: true"}) == "recomputed_layers: all");
  CHECK(after({"recomputed_layers: 1"}).empty());  // the recipe needs less already
  CHECK(after({"recomputed_layers: -1", "recomputed_layers: 0", "recomputed_layers: -2"}).empty());
  request.config.gradient_checkpointing = Recompute::offload;
  CHECK(changes_now() == Changes{"recomputed_layers: all"});
}

TEST_CASE("without a remedy left the error names what was tried and what needs less",
          "[oom_remedies]") {
  auto request = small_request();
  request.config.global_batch_size = 12;
  request.config.gradient_accumulation_steps = 2;
  request.config.gradient_accumulation_given = true;
  CHECK_THAT(no_remedy_left(request, changes(request.config, 1)),
             Contains("tried per_device_train_batch_size: 3; per_device_train_batch_size: 2; ") &&
                 Contains("gradient_checkpointing: offload; settings that need less memory: ") &&
                 Contains("max_length: 256 (from "));
}

TEST_CASE("advice that cannot be computed does not hide that no remedy is left", "[oom_remedies]") {
  auto request = small_request();
  SECTION("for the recipe") {
    request.config.global_batch_size = 7;  // no multiple of 6
    CHECK_THAT(no_remedy_left(request, {"zero_stage: 1"}),
               Contains("training ran out of memory") && Contains("tried zero_stage: 1; "));
  }
  SECTION("for a change of it") {
    request.config.gradient_accumulation_given = true;
    request.config.gradient_accumulation_steps = 1'000'000'000 / 6;  // not with more ranks
    CHECK_THAT(no_remedy_left(request, {}),
               Contains("settings that need less memory: max_length: 256 (from "));
  }
}
