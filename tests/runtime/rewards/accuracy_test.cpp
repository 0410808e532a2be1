#include "runtime/rewards/accuracy.hpp"

#include <chrono>

#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
using rewards::accuracy;

TEST_CASE("an answer is correct if it is the same number in any form", "[accuracy]") {
  for (const auto* answer :
       {"\\boxed{0.5}", "\\boxed{\\frac{1}{2}}", "\\boxed{\\frac{2}{4}}", "\\boxed{50\\%}",
        "$$\\boxed{\\dfrac{1}{2}}$$", "\\boxed{.5}", "\\boxed{x = 1/2}", "\\boxed{2^{-1}}",
        "\\boxed{\\sqrt{\\frac{1}{4}}}", "\\boxed{0.5 \\text{ cm}^2}",
        "The final answer is $0.50$.", "Answer: \\(\\frac{1}{2}\\)"}) {
    CAPTURE(answer);
    CHECK(accuracy(answer, "$\\frac{1}{2}$") == 1);
  }
}

TEST_CASE("an answer with another number is wrong", "[accuracy]") {
  for (const auto* answer :
       {"\\boxed{0.51}", "\\boxed{\\frac{1}{3}}", "\\boxed{-0.5}", "\\boxed{5}", "\\boxed{5\\%}",
        "\\boxed{\\text{half}}", "\\boxed{(1,2)}", "\\boxed{I do not know}", "\\boxed{}",
        "\\boxed{\\frac{1}{0}}"}) {
    CAPTURE(answer);
    CHECK(accuracy(answer, "$\\frac{1}{2}$") == 0);
  }
}

TEST_CASE("a number that nothing introduces as the answer is not an answer", "[accuracy]") {
  CHECK(accuracy("so it is $5$", "5") == 0);
  CHECK(accuracy("5", "5") == 0);
  CHECK(accuracy("Answer: 5", "5") == 0);
  CHECK(accuracy("", "5") == 0);
  CHECK(accuracy("Answer: $5$", "5") == 1);
}

TEST_CASE("the last box is the answer, and adjacent boxes are one answer", "[accuracy]") {
  CHECK(accuracy("first $\\boxed{3}$, but rather $\\boxed{5}$", "5") == 1);
  CHECK(accuracy("\\boxed{1} or \\boxed{2}", "$1, 2$") == 1);
  CHECK(accuracy("\\boxed{1} or \\boxed{2}", "$2$") == 0);
}

TEST_CASE("an undecidable answer has no score", "[accuracy]") {
  CHECK(accuracy("\\boxed{\\int_0^1 x dx}", "$\\frac{1}{2}$") == std::nullopt);
  CHECK(accuracy("\\boxed{\\frac{1}{2}}", "$\\int_0^1 x dx$") == std::nullopt);
  CHECK(accuracy("\\boxed{\\{x \\mid x > 2\\}}", "$(2, \\infty)$") == std::nullopt);
  CHECK(accuracy("\\boxed{\\int_0^1 x dx}", "$\\int_0^1 x dx$") == 1);  // word for word
}

TEST_CASE("a gold answer without a result gives no score", "[accuracy]") {
  for (const auto* gold : {"", "see above", "x^2", "yes"}) {
    CAPTURE(gold);
    CHECK(accuracy("\\boxed{5}", gold) == std::nullopt);
  }
}

TEST_CASE("hostile answers are decided within a second", "[accuracy]") {
  const auto times = [](std::size_t n, const std::string& what) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += what;
    return text;
  };
  const std::vector<std::string> hostile = {
      "\\boxed{" + times(50'000, "(") + "}",
      "\\boxed{" + times(1'000, "\\frac{1}{") + "2" + times(1'000, "}") + "}",
      "\\boxed{" + times(3'000, "9") + "}",
      "\\boxed{9^{9^{9^{9}}}}",
      "\\boxed{1000000!!!!}",
      "\\boxed{(x+y+z+1)^{1000000}}",
      "\\boxed{" + times(900, "x+") + "x}",
      "\\boxed{" + times(300, "\\{1,") + "2" + times(300, "\\}") + "}",
      times(100'000, "\\boxed{"),
      times(100'000, "$"),
      times(100'000, "\\["),
      times(50'000, "\\(\n") + "\\)",
      times(50'000, "\\( ") + "\\)",
      times(20'000, "answer: "),
      times(20'000, "final answer is "),
      times(20'000, "answer: $1"),
      times(100'000, "1 "),
      times(20'000, "answer 1 = 2 "),
      "\\boxed{\\binom{1000000000}{500000000}}",
      "\\boxed{2^{99999999999999999999}}",
      "\\boxed{" + times(60, "-") + "1}",
      "\\boxed{" + times(60, "|") + "x" + times(60, "|") + "}",
  };
  for (std::size_t i = 0; i < hostile.size(); ++i) {
    CAPTURE(i);
    for (const auto* gold : {"5", "$x^2+1$", "$\\{1,2\\}$"}) {
      const auto begin = std::chrono::steady_clock::now();
      const auto score = accuracy(hostile[i], gold);
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
      CHECK(score.value_or(0) == 0);
    }
    const auto begin = std::chrono::steady_clock::now();
    accuracy("\\boxed{5}", hostile[i]);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
  }
}

TEST_CASE("accuracy without a solution column reports the missing column", "[accuracy]") {
  const Batch batch({"\\boxed{5}"}, {{"answer", "5"}});
  CHECK_THAT(message_of([&] { batch.scored_by("accuracy"); }),
             Contains("reward accuracy: the dataset has no column solution"));
  CHECK(Batch({"\\boxed{5}"}, {{"solution", 5}}).scored_by("accuracy")[0] == 1);
}

TEST_CASE("reasoning_accuracy ignores answers within the reasoning", "[accuracy]") {
  const Batch batch(
      {"<think>\\boxed{5}</think> \\boxed{5}", "<think>\\boxed{5}</think> 4", "<think>\\boxed{5}"},
      {{"solution", "5"}});
  CHECK(batch.scored_by("reasoning_accuracy_reward") == std::vector<Score>{1, 0, 0});
}
