#include "runtime/rewards/rules.hpp"

#include <chrono>

#include "runtime/rewards/json_path.hpp"
#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::rewards;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

std::vector<Score> by_rule(const json& rule, const Batch& batch) {
  return batch.scored_by("mine", {{"reward_rules", {{"mine", rule}}}});
}

}  // namespace

TEST_CASE("a rule scores by a pattern", "[rewards][rules]") {
  const Batch batch({"Dear all", "dear", "hello"});
  CHECK(by_rule({{"regex", "^dear"}, {"flags", "i"}, {"match", 0.5}, {"otherwise", -1}}, batch) ==
        std::vector<Score>{0.5, 0.5, -1});
}

TEST_CASE("a rule compares the match of its pattern with a column", "[rewards][rules]") {
  const Batch batch({"so #### 42", "so #### 43", "42"}, {{"solution", 42}});
  CHECK(by_rule({{"regex", "#### (\\d+)"}, {"column", "solution"}}, batch) ==
        std::vector<Score>{1, 0, 0});
  CHECK_THAT(message_of([&] { by_rule({{"regex", "\\d+"}, {"column", "gold"}}, batch); }),
             Contains("reward mine: the dataset has no column gold"));
}

TEST_CASE("a rule finds JSON anywhere in the completion", "[rewards][rules]") {
  const Batch batch(
      {R"({"answer":{"items":[1,"x"]}})", "text ```json\n{\"answer\":{\"items\":[\"x\"]}}\n```",
       R"(so: {"answer":{"items":[]}} is it)", "no"},
      {{"solution", "x"}});
  CHECK(by_rule({{"json", "$.answer.items[-1]"}, {"column", "solution"}, {"invalid", -1}}, batch) ==
        std::vector<Score>{1, 1, 0, -1});
  CHECK(by_rule({{"json", "$.answer['items'][0]"}, {"equals", 1}}, batch) ==
        std::vector<Score>{1, 0, 0, 0});
  CHECK(by_rule({{"json", "$.answer"}}, batch) == std::vector<Score>{1, 1, 1, 0});
}

TEST_CASE("a pattern that needs too much work is an error that names the reward",
          "[rewards][rules]") {
  const Batch batch({std::string(5000, 'a') + "b"});
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THAT(message_of([&] { by_rule({{"regex", "(a|aa)+$"}}, batch); }), Contains("reward mine"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("JSON that is nested too deeply is not accepted as JSON", "[rewards][rules]") {
  CHECK(json_in(std::string(1'000'000, '[')).is_discarded());
  CHECK(json_in(std::string(100'000, '{') + std::string(100'000, '}')).is_discarded());
}

TEST_CASE("invalid rules are rejected when they are read", "[rewards][rules]") {
  const auto refused = [](const json& rule) {
    return message_of([&] { read_settings({{"reward_rules", {{"mine", rule}}}}); });
  };
  CHECK_THAT(refused({{"regex", "("}}),
             Contains("rule mine of reward_rules: pattern ( is invalid"));
  CHECK_THAT(refused({{"regx", "a"}}), Contains("either regex or json"));
  CHECK_THAT(refused({{"regex", "a"}, {"mach", 1}}), Contains("did you mean match?"));
  CHECK_THAT(refused({{"json", "answer"}}), Contains("$.answer.items[0]"));
  CHECK_THAT(refused({{"json", "$.a"}, {"equals", 1}, {"column", "b"}}),
             Contains("cannot be used together"));
  CHECK_THAT(refused({{"regex", "a"}, {"flags", "z"}}), Contains("supported are i, m, s and x"));
  CHECK_THAT(refused(5), Contains("a mapping"));
}
