#include <cmath>
#include <numbers>

#include "runtime/rewards/text_rewards.hpp"
#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::rewards;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

const std::string kGood = "<think>\nwhy\n</think>\n<answer>\n5\n</answer>";

std::vector<double> values_of(const std::vector<Score>& scores) {
  std::vector<double> values;
  for (const auto& score : scores) values.push_back(score.value_or(-99));
  return values;
}

}  // namespace

TEST_CASE("format requires both blocks on their own lines", "[rewards]") {
  CHECK(format_score(kGood) == 1);
  CHECK(format_score(kGood + "\nand more") == 1);  // $ also matches before a newline
  CHECK(format_score(kGood + " and more") == 0);
  CHECK(format_score("so: " + kGood) == 0);
  CHECK(format_score("<think>why</think><answer>5</answer>") == 0);
  CHECK(format_score("<think>\n\n</think>\n<answer>\n\n</answer>") == 1);
  CHECK(format_score("<think>\n</think>\n<answer>\n</answer>") == 0);
  CHECK(format_score("<think>\na\n</answer>\n</think>\n<answer>\nb\n</answer>") == 1);
  CHECK(format_score("") == 0);
}

TEST_CASE("each tag counts if it occurs exactly once", "[rewards]") {
  CHECK(tag_count_score(kGood) == 1);
  CHECK(tag_count_score("<think>\nwhy\n</think>\n") == 0.5);
  CHECK(tag_count_score(kGood + kGood) == 0);
  CHECK(tag_count_score("") == 0);
}

TEST_CASE("steps are counted up to three, numbered ones only at the beginning", "[rewards]") {
  const Batch batch({"1. a\n2. b\n3. c", "Step 1: a Step 2: b Step 3: c", "First, Second,",
                     "a\n- b", "", "Step \u0664: arabic digits"});
  const auto scores = values_of(batch.scored_by("reasoning_steps"));
  CHECK(scores == std::vector<double>{1.0 / 3, 1, 2.0 / 3, 1.0 / 3, 0, 1.0 / 3});
}

TEST_CASE("think_format requires one closed think block at the start", "[rewards]") {
  CHECK(think_format_score("<think>a</think>b") == 1);
  CHECK(think_format_score("<think>a<think></think>b") == 0);
  CHECK(think_format_score(" <think>a</think>b") == 0);
  CHECK(think_format_score("<think>a") == 0);
}

TEST_CASE("length compares within the group, or with length_scope batch within the call",
          "[rewards]") {
  Batch batch({"\\boxed{5}", "\\boxed{5} and", "\\boxed{5} and so on", "\\boxed{4}"},
              {{"solution", "5"}});
  batch.groups = {0, 0, 1, 1};
  CHECK(values_of(batch.scored_by("length")) == std::vector<double>{0.5, -0.5, -0.5, 0});
  const auto all = values_of(batch.scored_by("length", {{"length_scope", "batch"}}));
  CHECK(all == std::vector<double>{0.5, 0.5 - 4.0 / 10, -0.5, 0});
}

TEST_CASE("length gives 0 if all completions are equally long", "[rewards]") {
  const Batch batch({"\\boxed{5}", "\\boxed{4}"}, {{"solution", "5"}});
  CHECK(values_of(batch.scored_by("length")) == std::vector<double>{0, 0});
}

TEST_CASE("a gold answer without a result counts as matched for length and cosine", "[rewards]") {
  const Batch batch({"a", "abc"}, {{"solution", "?"}});
  CHECK(values_of(batch.scored_by("length")) == std::vector<double>{0.5, -0.5});
  CHECK(values_of(batch.scored_by("cosine")) == std::vector<double>{1, 1});
  CHECK(batch.scored_by("get_cosine_scaled_reward") ==
        std::vector<Score>{std::nullopt, std::nullopt});
}

TEST_CASE("cosine falls with length for correct answers and rises for wrong ones", "[rewards]") {
  const Batch batch({"\\boxed{5}", "\\boxed{4}"}, {{"solution", "5"}});
  const json settings = {{"cosine_max_len", 9}, {"cosine_min_value_wrong", -1}};
  const auto full = values_of(batch.scored_by("cosine", settings));
  CHECK(full[0] == Approx(0.5));
  CHECK(full[1] == Approx(-0.5));
  const json twice = {{"cosine_max_len", 18}};
  CHECK(values_of(batch.scored_by("cosine", twice))[0] == Approx(0.75));
  CHECK(values_of(batch.scored_by("cosine", twice))[1] == Approx(-0.25));  // open-r1: 0 to -0.5
}

TEST_CASE("TRL's cosine counts tokens and stays constant beyond the maximum length", "[rewards]") {
  Batch batch({"\\boxed{5}", "\\boxed{4}", "\\boxed{4}"}, {{"solution", "5"}});
  batch.ids = {std::vector<int>(30, 1), {}, std::vector<int>(20, 1)};
  const auto scores =
      values_of(batch.scored_by("get_cosine_scaled_reward", {{"cosine_max_len", 10}}));
  CHECK(scores[0] == Approx(0.5));
  CHECK(scores[1] == Approx(-1));
  CHECK(scores[2] == Approx(-0.5));
}

TEST_CASE("repetition is the fraction of n-grams that are not new", "[rewards]") {
  const Batch batch({"a b c a b c", "a b c d", "a b", "", "A b\u00a0C a B c"});
  CHECK(values_of(batch.scored_by("repetition_penalty")) ==
        std::vector<double>{-0.25, 0, 0, 0, -0.25});
  Batch ids({"x", "x"});
  ids.ids = {{1, 2, 3, 4}, {5, 5, 5, 5, 5}};
  CHECK(values_of(ids.scored_by("get_repetition_penalty_reward", {{"repetition_n_grams", 2}})) ==
        std::vector<double>{0, -0.75});
}

TEST_CASE("overlong completions are penalised within the cache", "[rewards]") {
  CHECK(overlong_score(80, 100, 20) == 0);
  CHECK(overlong_score(90, 100, 20) == -0.5);
  CHECK(overlong_score(100, 100, 20) == -1);
  CHECK(overlong_score(101, 100, 20) == -1);
  CHECK(overlong_score(101, 100, 0) == -1);
  Batch batch({"x"});
  batch.ids = {std::vector<int>(1280, 1)};
  CHECK(values_of(batch.scored_by("soft_overlong_punishment")) == std::vector<double>{0});
  CHECK(values_of(batch.scored_by("get_soft_overlong_punishment")) == std::vector<double>{-1});
}

TEST_CASE("ranking penalises misses by position if the group has a hit", "[rewards]") {
  Batch batch({"b", "\"a\"\n", "c", "b"}, {{"solution", "a"}});
  batch.groups = {0, 0, 0, 1};
  const double all = 1 + 1 / std::log2(3) + 0.5;
  const auto scores = values_of(batch.scored_by("ranking"));
  CHECK(scores[0] == Approx(-1 / all));
  CHECK(scores[1] == 1);
  CHECK(scores[2] == Approx(-0.5 / all));
  CHECK(scores[3] == 0);
  CHECK(values_of(batch.scored_by("rule")) == std::vector<double>{0, 1, 0, 0});
  CHECK(values_of(batch.scored_by("ndcg_rule"))[1] == 0);
}

TEST_CASE("ndcg_rule divides the weights of the places by their sum", "[rewards]") {
  // Places 0 to 3 weigh 1, 0.63093, 0.5 and 0.43068, together 2.56161.
  Batch batch({"x", "a", "y", "a"}, {{"completion", "a\n"}});
  const auto scores = values_of(batch.scored_by("ndcg_rule"));
  CHECK(scores[0] == Approx(-.39038).epsilon(1e-4));
  CHECK(scores[1] == 0);
  CHECK(scores[2] == Approx(-.19519).epsilon(1e-4));
  CHECK(scores[3] == 0);
}

TEST_CASE("an unknown reward is rejected with the nearest name and the list", "[rewards]") {
  const auto message = message_of([] { make_reward("acuracy", {}); });
  CHECK_THAT(message, Contains("unknown reward acuracy (did you mean accuracy?)"));
  CHECK_THAT(message, Contains("tag_count"));
  CHECK_THAT(message_of([] { make_reward("code", {}); }), Contains("./my_rewards.py:code"));
  CHECK_THAT(message_of([] { make_rewards({"format", "format"}, {}); }), Contains("format twice"));
  CHECK_THAT(message_of([] { make_rewards({}, {}); }), Contains("reward_funcs is empty"));
}

TEST_CASE("invalid settings are rejected by name", "[rewards]") {
  CHECK_THAT(message_of([] { read_settings({{"cosine_maxlen", 5}}); }),
             Contains("did you mean cosine_max_len?"));
  CHECK_THAT(message_of([] { read_settings({{"cosine_max_len", 0}}); }),
             Contains("cosine_max_len: 0 is too small"));
  CHECK_THAT(message_of([] { read_settings({{"repetition_max_penalty", 1}}); }),
             Contains("repetition_max_penalty"));
  CHECK_THAT(message_of([] { read_settings({{"length_scope", "rank"}}); }),
             Contains("length_scope must be group or batch"));
}

TEST_CASE("every built-in reward scores an empty completion", "[rewards]") {
  for (const auto& name : reward_names()) {
    CAPTURE(name);
    const Batch batch({"", ""}, {{"solution", "5"}});
    for (const auto& score : batch.scored_by(name)) CHECK(std::isfinite(score.value_or(0)));
  }
}
