#include "runtime/text/compiled_pattern.hpp"

#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::text;
using Texts = PatternOptions::Texts;
using Catch::Matchers::Contains;

TEST_CASE("a match has its bounds and its first group", "[pattern]") {
  const CompiledPattern pattern("a(b)?(c)(d)?", {});
  const std::string text = "-abc-acd";
  const auto first = pattern.find(text, 0, {});
  REQUIRE(first);
  CHECK(first->begin == 1);
  CHECK(first->end == 4);
  CHECK(first->group == "b");
  const auto second = pattern.find(text, first->end, {});
  REQUIRE(second);
  CHECK(second->begin == 5);
  CHECK(!second->group);
  CHECK(!pattern.find(text, second->end, {}));
}

TEST_CASE("a pattern without groups does not report the group of an earlier search", "[pattern]") {
  const CompiledPattern with_group("(a)", {});
  const CompiledPattern without_groups("a", {});
  CHECK(with_group.find("a", 0, {})->group == "a");
  CHECK(!without_groups.find("a", 0, {})->group);
}

TEST_CASE("each option of a pattern has its meaning", "[pattern]") {
  const auto matches = [](const char* pattern, const char* text, const PatternOptions& options) {
    return CompiledPattern(pattern, options).find(text, 0, {}).has_value();
  };
  CHECK(matches("a", "bab", {}));
  CHECK(!matches("a", "ab", {.whole_text = true}));
  CHECK(matches("a|ab", "ab", {.whole_text = true}));
  CHECK(!matches("A", "a", {}));
  CHECK(matches("A", "a", {.any_case = true}));
  CHECK(!matches("^b$", "a\nb\nc", {}));
  CHECK(matches("^b$", "a\nb\nc", {.many_lines = true}));
  CHECK(!matches("a.b", "a\nb", {}));
  CHECK(matches("a.b", "a\nb", {.dot_all = true}));
  CHECK(matches("a b # words", "ab", {.verbose = true}));
  CHECK(!matches("\\w", "\u00e9", {}));
  CHECK(matches("\\w", "\u00e9", {.unicode_classes = true}));
  CHECK(matches("a", "a", {.to_machine_code = true}));
  CHECK(matches("\\C", "a", {}));
  CHECK_THROWS_AS(CompiledPattern("\\C", {.no_single_bytes = true}), PatternError);
  CHECK_THROWS_WITH(CompiledPattern("((a))", {.most_nested = 1}), Contains("nested"));
}

TEST_CASE("an invalid pattern is reported with its place", "[pattern]") {
  try {
    CompiledPattern("a(b", {});
    FAIL("not reported");
  } catch (const PatternError& error) {
    CHECK(error.place() == 3);
    CHECK(error.what() == std::string("missing closing parenthesis"));
  }
}

TEST_CASE("bytes that are not UTF-8 are an error or match nothing, as the options say",
          "[pattern]") {
  const std::string text =
      "a\xff"
      "a";
  CHECK_THROWS_WITH(CompiledPattern("a$", {}).find(text, 0, {}), Contains("UTF-8 error"));
  const CompiledPattern any_bytes("a.?a", {.texts = Texts::any_bytes});
  CHECK(!any_bytes.find(text, 0, {}));
  CHECK(any_bytes.find(text + "ba", 0, {})->begin == 2);
}

TEST_CASE("each search has the limits of its caller", "[pattern]") {
  const bool to_machine_code = GENERATE(false, true);
  const CompiledPattern pattern("(a+)+[bc]", {.to_machine_code = to_machine_code});
  const std::string text(18, 'a');
  CHECK_THROWS_WITH(pattern.find(text, 0, {.steps = 100}), "match limit exceeded");
  CHECK(!pattern.find(text, 0, {}));
  CHECK_THROWS_WITH(pattern.find(text, 0, {.steps = 100}), "match limit exceeded");
}

TEST_CASE("several threads search with one pattern at once", "[pattern]") {
  const CompiledPattern pattern("x(\\d+)", {.to_machine_code = true});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t thread = 0; thread < wrong.size(); ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 2000; ++i) {
        const auto number = std::to_string(i * 4 + static_cast<int>(thread));
        const std::string text = std::string(thread, ' ') + "x" + number;
        const auto match = pattern.find(text, 0, {});
        if (!match || match->begin != thread || match->group != number) ++wrong[thread];
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}
