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

Changes changes(const TrainConfig& config, std::int64_t ranks) {
  Changes all;
  for (const auto& remedy : oom_remedies(config, ranks)) all.push_back(remedy.change);
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
  const auto remedies = oom_remedies(shrinkable(), 4);
  CHECK(halvings(remedies) == 3);
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

TEST_CASE("the settings in use name each key once", "[oom_remedies]") {
  const auto remedies = oom_remedies(shrinkable(), 4);
  CHECK(changes_of(remedies, 0).empty());
  CHECK(changes_of(remedies, 2) == "per_device_train_batch_size: 2");
  CHECK(changes_of(remedies, 6) ==
        "per_device_train_batch_size: 1, gradient_checkpointing: offload, zero_stage: 2");
  CHECK(changes_of(remedies, 99) ==
        "per_device_train_batch_size: 1, gradient_checkpointing: offload, zero_stage: 3");
}

TEST_CASE("without a remedy left the error names what was tried and what needs less",
          "[oom_remedies]") {
  PlanRequest request{.model = {.vocab_size = 4096,
                                .hidden_size = 512,
                                .intermediate_size = 2048,
                                .layers = 4,
                                .heads = 8,
                                .kv_heads = 4,
                                .head_dim = 64,
                                .max_position = 4096},
                      .config = shrinkable(),
                      .ranks = 1};
  const auto remedies = oom_remedies(request.config, 1);
  request.config.global_batch_size = 12;
  request.config.gradient_accumulation_steps = 2;
  request.config.gradient_accumulation_given = true;
  CHECK_THAT(no_remedy_left(request, remedies),
             Contains("tried per_device_train_batch_size: 3; per_device_train_batch_size: 2; ") &&
                 Contains("gradient_checkpointing: offload; settings that need less memory: ") &&
                 Contains("max_length: 256 (from "));
}
