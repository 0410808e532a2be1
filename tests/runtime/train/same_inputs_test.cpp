#include "runtime/train/same_inputs.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::train;

namespace {

const std::string kOne(64, 'a'), kOther(64, 'b');

}  // namespace

TEST_CASE("ranks with the same inputs have no difference", "[same_inputs]") {
  CHECK(!difference_of({{0, "a", {{"seed", "1"}}}, {1, "b", {{"seed", "1"}}}}));
}

TEST_CASE("the first rank that trains on something else is named with what differs",
          "[same_inputs]") {
  CHECK(difference_of({{0, "a", {{"dataset_name", kOne}, {"seed", "1"}, {"zero_stage", "2"}}},
                       {1, "a", {{"dataset_name", kOne}, {"seed", "1"}, {"zero_stage", "2"}}},
                       {2, "b", {{"dataset_name", kOther}, {"seed", ""}, {"zero_stage", "2"}}}}) ==
        "rank 0 on a and rank 2 on b do not train on the same: dataset_name has different "
        "contents, seed is 1 and not set; start all nodes with the same recipe, data and model");
}

TEST_CASE("a message names the first five differences", "[same_inputs]") {
  Fingerprint one, other;
  for (const auto* key : {"a", "b", "c", "d", "e", "f", "g"}) {
    one[key] = "1";
    other[key] = "2";
  }
  CHECK_THAT(difference_of({{0, "", one}, {1, "", other}}).value(),
             Catch::Matchers::StartsWith("rank 0 and rank 1 do") &&
                 Catch::Matchers::Contains("e is 1 and 2, 2 more;"));
}

TEST_CASE("nodes may keep files elsewhere but must agree on how they train", "[same_inputs]") {
  TrainConfig config;
  const auto same = shared_settings(config);
  SECTION("paths") {
    config.output_dir = "elsewhere";
    config.model_name_or_path = "elsewhere";
    config.dataset_name = {{"elsewhere", 1}};
    config.dataset_num_proc = 3;
    CHECK(shared_settings(config) == same);
  }
  SECTION("settings") {
    const auto change = GENERATE(
        +[](TrainConfig& c) { c.zero_stage = 3; },
        +[](TrainConfig& c) { c.per_device_train_batch_size = 7; },
        +[](TrainConfig& c) { c.max_steps = 7; }, +[](TrainConfig& c) { c.save_steps = 7; },
        +[](TrainConfig& c) { c.weight_decay = .7; });
    change(config);
    CHECK(shared_settings(config) != same);
  }
}
