#include "runtime/config/planning/batch_arithmetic.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

TEST_CASE("a step is per device x ranks x accumulation", "[batch]") {
  TrainConfig config;
  config.per_device_train_batch_size = 2;
  const auto plan = plan_batch(config, 4);
  CHECK(plan == BatchPlan{2, 4, 1});
  CHECK(batch_sentence(plan, false) ==
        "8 sequences per step = 2 per device x 4 ranks x 1 accumulation");
  CHECK(batch_sentence({1, 1, 3}, true) ==
        "3 bins per step = 1 per device x 1 rank x 3 accumulation");
}

TEST_CASE("a global batch is the same at every number of ranks that divides it", "[batch]") {
  TrainConfig config;
  config.per_device_train_batch_size = 4;
  config.global_batch_size = 128;
  for (const int ranks : {1, 2, 4, 8, 16, 32}) {
    CAPTURE(ranks);
    CHECK(plan_batch(config, ranks).global() == 128);
    CHECK(plan_batch(config, ranks).accumulation == 32 / ranks);
  }
}

TEST_CASE("an unreachable global batch size is refused with values that work", "[batch]") {
  TrainConfig config;
  config.per_device_train_batch_size = 4;
  config.global_batch_size = 120;
  CHECK_THROWS_WITH(
      plan_batch(config, 4),
      "global_batch_size 120 is not a multiple of 4 per device x 4 ranks = 16; possible "
      "per_device_train_batch_size: 1, 2, 3, 5, 6, 10, 15, 30; possible numbers of ranks: 1, 2, "
      "3, 5, 6, 10, 15, 30; possible global_batch_size: 112, 128");
  config.global_batch_size = 7;
  CHECK_THROWS_WITH(plan_batch(config, 3), Contains("possible global_batch_size: 12"));
  CHECK_THROWS_WITH(plan_batch(config, 3), !Contains("possible per_device_train_batch_size"));
}

TEST_CASE("every proposed value works", "[batch]") {
  TrainConfig config;
  config.global_batch_size = 360;
  config.per_device_train_batch_size = 7;
  CHECK_THROWS_WITH(plan_batch(config, 4),
                    Contains("possible per_device_train_batch_size: 1, 2, 3, 5, 6, 9, 10, 15;"));
  for (const int each : {1, 2, 3, 5, 6, 9, 10, 15}) {
    config.per_device_train_batch_size = each;
    CHECK(plan_batch(config, 4).global() == 360);
  }
}

TEST_CASE("a given gradient accumulation is kept or refused, never changed", "[batch]") {
  TrainConfig config;
  config.per_device_train_batch_size = 2;
  config.global_batch_size = 16;
  config.gradient_accumulation_steps = 2;
  config.gradient_accumulation_given = true;
  CHECK(plan_batch(config, 4).accumulation == 2);
  CHECK_THROWS_WITH(plan_batch(config, 2),
                    Contains("is not 2 per device x 2 ranks x 2 accumulation = 8"));
}

TEST_CASE("huge steps are refused before they overflow", "[batch]") {
  TrainConfig config;
  config.per_device_train_batch_size = 1'000'000'000;
  config.gradient_accumulation_steps = 1'000'000'000;
  CHECK_THROWS_WITH(plan_batch(config, 8), Contains("is out of range: 1 to"));
  CHECK_THROWS_WITH(plan_batch(config, 0), Contains("need 1 to"));
}
