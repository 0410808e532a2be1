#include "runtime/train/fingerprint.hpp"

#include <fmt/format.h>

#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

const std::string kSaved(64, 'a'), kNow(64, 'b');

std::string refusal(const Fingerprint& saved, const Fingerprint& now) {
  try {
    check_same_run("checkpoint-8", saved, now, false);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("the fingerprint of a recipe has what decides the rows of a step", "[fingerprint]") {
  TrainConfig config;
  const auto same = settings_fingerprint(config);
  SECTION("settings of every run") {
    const auto change = GENERATE(
        std::pair<const char*, void (*)(TrainConfig&)>{"max_length",
                                                       [](TrainConfig& c) { c.max_length = 7; }},
        std::pair<const char*, void (*)(TrainConfig&)>{"seed", [](TrainConfig& c) { c.seed = 7; }},
        std::pair<const char*, void (*)(TrainConfig&)>{"data_seed",
                                                       [](TrainConfig& c) { c.data_seed = 7; }},
        std::pair<const char*, void (*)(TrainConfig&)>{"packing",
                                                       [](TrainConfig& c) { c.packing = true; }},
        std::pair<const char*, void (*)(TrainConfig&)>{"warmup_steps",
                                                       [](TrainConfig& c) { c.warmup_steps = 7; }});
    change.second(config);
    const auto changes = changes_between(same, settings_fingerprint(config));
    REQUIRE(changes.other_run.size() == 1);
    CHECK_THAT(changes.other_run[0], Contains(std::string(change.first) + " was"));
    CHECK(changes.allowed.empty());
  }
  SECTION("settings of an adapter only with an adapter") {
    config.lora_alpha = 7;
    CHECK(settings_fingerprint(config) == same);
    config.use_peft = true;
    CHECK(settings_fingerprint(config).at("lora_alpha") == "7");
  }
  SECTION("not how the ranks share the work, nor where files are") {
    config.zero_stage = 3;
    config.per_device_train_batch_size = 1;
    config.output_dir = "elsewhere";
    config.dataset_num_proc = 3;
    CHECK(settings_fingerprint(config) == same);
  }
}

TEST_CASE("the digest of a dataset depends on contents and weights, not on paths",
          "[fingerprint]") {
  const auto one = dataset_digest({{"a", 1}, {"b", 2}}, {kSaved, kNow});
  CHECK(dataset_digest({{"x/a", 1}, {"x/b", 2}}, {kSaved, kNow}) == one);
  CHECK(dataset_digest({{"a", 1}, {"b", 1}}, {kSaved, kNow}) != one);
  CHECK(dataset_digest({{"a", 1}, {"b", 2}}, {kNow, kSaved}) != one);
}

TEST_CASE("a checkpoint of another run is refused with every difference", "[fingerprint]") {
  // A run once continued with other data, another seed and another length without a word.
  const Fingerprint saved{{"dataset_name", kSaved}, {"max_length", "64"}, {"seed", "42"}};
  CHECK(refusal(saved, saved).empty());
  CHECK(refusal(saved, {{"dataset_name", kNow}, {"max_length", "32"}, {"seed", "42"}}) ==
        "checkpoint-8 belongs to another run: dataset_name has other contents, max_length was 64 "
        "and is now 32; restore these, set resume_from_checkpoint: no to start over, or "
        "resume_with_changes: true to continue anyway");
  CHECK_THAT(refusal(saved, {{"seed", ""}}), Contains("seed was 42 and is now not set;"));
}

TEST_CASE("a version that records more settings accepts the checkpoints of one with fewer",
          "[fingerprint]") {
  CHECK(check_same_run("checkpoint-8", {{"seed", "42"}, {"old", "1"}},
                       {{"seed", "42"}, {"new", "2"}}, false)
            .empty());
}

TEST_CASE("a run continues with changes if it is asked to, with a note for each", "[fingerprint]") {
  CHECK(check_same_run("checkpoint-8", {{"seed", "42"}}, {{"seed", "7"}}, true) ==
        std::vector<std::string>{"since checkpoint-8: seed was 42 and is now 7"});
}

TEST_CASE("a run may be made longer and get another learning rate, with a note", "[fingerprint]") {
  CHECK(check_same_run("checkpoint-8", {{"total_steps", "8"}, {"learning_rate", "0.1"}},
                       {{"total_steps", "12"}, {"learning_rate", "0.2"}}, false) ==
        std::vector<std::string>{"since checkpoint-8: learning_rate was 0.1 and is now 0.2",
                                 "since checkpoint-8: total_steps was 8 and is now 12"});
}

TEST_CASE("rewards and the optimizer may change, with a note", "[fingerprint]") {
  // Once these changes were accepted without a word.
  const auto key = GENERATE("reward_funcs", "beta", "temperature", "optim", "weight_decay", "dtype",
                            "lora_dropout");
  CHECK(check_same_run("checkpoint-8", {{key, "1"}}, {{key, "2"}}, false) ==
        std::vector<std::string>{fmt::format("since checkpoint-8: {} was 1 and is now 2", key)});
}

TEST_CASE("other layers with adapters make another run, in whatever order they are named",
          "[fingerprint]") {
  TrainConfig config;
  config.use_peft = true;
  config.lora_target_modules = {"q_proj", "v_proj"};
  const auto saved = settings_fingerprint(config);
  config.lora_target_modules = {"v_proj", "q_proj"};
  CHECK(settings_fingerprint(config) == saved);
  config.lora_target_modules = {"q_proj"};
  CHECK(refusal(saved, settings_fingerprint(config))
            .find("lora_target_modules was q_proj v_proj and is now q_proj") != std::string::npos);
  config.lora_target_modules = {};
  CHECK(settings_fingerprint(config).at("lora_target_modules") == "all");
}

TEST_CASE("a checkpoint of an earlier version is accepted with a note", "[fingerprint]") {
  const auto notes = check_same_run("checkpoint-8", {}, {{"seed", "7"}}, false);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Contains("checkpoint-8 does not record its data and settings"));
}
