#include "runtime/rl/generation_file.hpp"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/rl/completion_bytes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::rl;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

std::vector<ScoredCompletion> some_completions() {
  return {{.prompt = 3,
           .tokens = {5, 7, 9},
           .sampler_log_probs = {-0.1F, kUnknown, -3e-7F},
           .old_log_probs = {-1, -2, -3},
           .ref_log_probs = {},
           .text = "\xc3\xa4 b\n",
           .terminated = true,
           .rewards = {1.5, std::nullopt, 2.0},
           .advantage = -0.25},
          {.prompt = 4, .tokens = {}, .text = "", .rewards = {}},
          {.prompt = 4'000'000'000U,
           .tokens = {151'000},
           .sampler_log_probs = {-1},
           .old_log_probs = {},
           .ref_log_probs = {-0.5F},
           .text = "x",
           .rewards = {0.1},
           .advantage = 1e-300}};
}

void check_same(const std::vector<float>& ours, const std::vector<float>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    CHECK((ours[i] == theirs[i] || (std::isnan(ours[i]) && std::isnan(theirs[i]))));
}

void check_same(const std::vector<ScoredCompletion>& ours,
                const std::vector<ScoredCompletion>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CHECK(ours[i].prompt == theirs[i].prompt);
    CHECK(ours[i].tokens == theirs[i].tokens);
    check_same(ours[i].sampler_log_probs, theirs[i].sampler_log_probs);
    check_same(ours[i].old_log_probs, theirs[i].old_log_probs);
    check_same(ours[i].ref_log_probs, theirs[i].ref_log_probs);
    CHECK(ours[i].text == theirs[i].text);
    CHECK(ours[i].terminated == theirs[i].terminated);
    CHECK((ours[i].rewards == theirs[i].rewards));
    CHECK(ours[i].advantage == theirs[i].advantage);
  }
}

}  // namespace

TEST_CASE("completions in a file are read back as the same", "[generation_file]") {
  const TempDir dir(TempDir::in_memory());
  const auto completions = some_completions();
  write_completions(dir.path("7.safetensors"), completions);
  check_same(read_completions(dir.path("7.safetensors")), completions);
  write_completions(dir.path("8.safetensors"), {});
  CHECK(read_completions(dir.path("8.safetensors")).empty());
}

TEST_CASE("completions take about 20 bytes per token", "[generation_file]") {
  // As JSON in trainer_state.json they once took 82.
  const TempDir dir(TempDir::in_memory());
  constexpr std::size_t kTokens = 1000;
  ScoredCompletion completion;
  completion.tokens.assign(kTokens, 151'000);
  for (auto* log_probs :
       {&completion.sampler_log_probs, &completion.old_log_probs, &completion.ref_log_probs})
    log_probs->assign(kTokens, -0.123456789F);
  completion.text.assign(4 * kTokens, 'x');
  completion.rewards = {1.0, 0.5};
  write_completions(dir.path("7.safetensors"), std::vector<ScoredCompletion>(32, completion));
  const auto bytes = std::filesystem::file_size(dir.path("7.safetensors"));
  CHECK(bytes < 32 * kTokens * 21);
}

TEST_CASE("completions of earlier versions are read from JSON", "[generation_file]") {
  const auto generation = generation_from(nlohmann::json::parse(R"({
      "number": 2, "metrics": {"reward": 0.5}, "samples": [
        {"question": 3, "tokens": [5, 7], "sampler": [-0.5, null], "old": [], "ref": [-1.0, -2.0],
         "text": "a b", "terminated": true, "rewards": [1.5, null], "advantage": -0.25}]})"));
  CHECK(generation.number == 2);
  CHECK(generation.metrics.at("reward") == 0.5);
  check_same(generation.completions, {{.prompt = 3,
                                       .tokens = {5, 7},
                                       .sampler_log_probs = {-0.5F, kUnknown},
                                       .old_log_probs = {},
                                       .ref_log_probs = {-1, -2},
                                       .text = "a b",
                                       .terminated = true,
                                       .rewards = {1.5, std::nullopt},
                                       .advantage = -0.25}});
}

TEST_CASE("a file of completions that does not fit together is refused with the tensor",
          "[generation_file]") {
  using namespace mgpu::checkpoint;
  const TempDir dir(TempDir::in_memory());
  const auto path = dir.path("7.safetensors");
  write_completions(path, some_completions());
  const SafetensorsFile whole(path);
  const auto [name, replaced, why] = GENERATE(table<std::string, std::string, std::string>(
      {{"tokens", "", "tensor tokens is missing"},
       {"terminated", "prompt", "tensor terminated is missing or has another type"},
       {"advantage", "rewards", "tensor advantage has another number of completions"},
       {"text_ends", "tokens_ends", "tensor text_ends does not match text"},
       {"ref_log_probs_ends", "tokens_ends",
        "tensor ref_log_probs_ends does not match ref_log_probs"},
       {"old_log_probs", "ref_log_probs", "does not match old_log_probs"},
       {"sampler_log_probs_ends", "text_ends", "does not match sampler_log_probs"},
       {"old_log_probs_ends", "advantage", "tensor old_log_probs_ends is missing"}}));
  CAPTURE(name, replaced);
  std::vector<TensorPlan> plan;
  std::vector<std::span<const std::byte>> contents;
  for (const auto& entry : whole.entries()) {
    if (entry.name == name && replaced.empty()) continue;
    const auto& from = entry.name == name ? *whole.find(replaced) : entry;
    plan.push_back({entry.name, from.dtype, from.shape});
    contents.push_back(whole.bytes(from));
  }
  {
    SafetensorsWriter writer(dir.path("bad"), plan);
    for (std::size_t i = 0; i < plan.size(); ++i) writer.write(plan[i].name, contents[i]);
    writer.finish();
  }
  CHECK_THROWS_WITH(read_completions(dir.path("bad")), Contains(why));
}

TEST_CASE("log-probs that are not one per token are refused", "[generation_file]") {
  const TempDir dir(TempDir::in_memory());
  auto completions = some_completions();
  completions[0].old_log_probs.pop_back();
  write_completions(dir.path("7.safetensors"), completions);
  CHECK_THROWS_WITH(read_completions(dir.path("7.safetensors")),
                    Contains("tensor old_log_probs has another number of tokens"));
}

TEST_CASE("completions that ranks exchange as bytes arrive as they were", "[completion_bytes]") {
  const auto completions = some_completions();
  const auto bytes = to_bytes(completions);
  check_same(completions_from(bytes), completions);
  CHECK(to_bytes({}).empty());
  CHECK(completions_from({}).empty());
  auto together = to_bytes(std::span(completions).first(1));
  const auto others = to_bytes(std::span(completions).subspan(1));
  together.insert(together.end(), others.begin(), others.end());
  CHECK((together == bytes));
}

TEST_CASE("bytes that end early or claim more than there is are no completions",
          "[completion_bytes]") {
  const auto completions = some_completions();
  const auto bytes = to_bytes(std::span(completions).first(1));
  for (std::size_t size = 1; size < bytes.size(); ++size)
    CHECK_THROWS_WITH(completions_from({bytes.data(), size}), Contains("are incomplete"));
  auto longer = bytes;
  for (std::size_t i = 4; i < 12; ++i) longer[i] = std::byte{0xff};  // the number of tokens
  CHECK_THROWS_WITH(completions_from(longer), Contains("are incomplete"));
}
